//! The window of a buffered queue: when what waits in memory is written. Pure: time is passed in, as the time since
//! any one moment.

use std::time::Duration;

/// How often windows are looked at: the period of the one flusher of a process.
pub const TICK: Duration = Duration::from_millis(100);

/// The waits after flushes that failed, one after the other; the last repeats.
pub const FLUSH_WAITS: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(30),
];

/// How messages of a queue are gathered in memory before they are written together.
///
/// A send to such a queue returns before its message is stored: what is in memory when the process dies is lost. In
/// exchange a thousand sends cost one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    window: Duration,
    age_max: Duration,
    messages_max: usize,
}

impl Buffer {
    /// Written 100 ms after the last message, at most 5 s after the first; 10,000 messages at most.
    pub const DEFAULT: Self =
        Self { window: Duration::from_millis(100), age_max: Duration::from_secs(5), messages_max: 10_000 };

    /// How long after the last message all of them are written: each one moves it. Zero: at once, by the caller.
    #[must_use]
    pub const fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How long after the first message they are written at the latest.
    #[must_use]
    pub const fn age_max(mut self, age: Duration) -> Self {
        self.age_max = age;
        self
    }

    /// Most messages in memory; beyond it a send writes its own and waits for the store.
    #[must_use]
    pub const fn messages_max(mut self, messages: usize) -> Self {
        self.messages_max = messages;
        self
    }
}

/// Whether messages may wait in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// They wait; the caller is done.
    Buffered,
    /// The caller writes them itself.
    Direct,
}

/// What one buffered queue has in memory.
///
/// - *waiting*: messages wait for the deadline, or for the end of a wait after a failure. [`begin`](Self::begin)
///   leads to *flying*.
/// - *flying*: some are being written, others may gather behind them. [`stored`](Self::stored) ends it;
///   [`failed`](Self::failed) puts them back in front, with a wait.
#[derive(Debug, Clone)]
pub struct Window {
    buffer: Buffer,
    /// This many messages make the window due at once.
    size: usize,
    waiting: usize,
    flying: usize,
    /// When the first of those that wait came.
    first: Duration,
    deadline: Duration,
    failures: usize,
    /// After a failure: not before this.
    not_before: Duration,
}

impl Window {
    /// An empty window; `size` messages make it due.
    pub const fn new(buffer: Buffer, size: usize) -> Self {
        let zero = Duration::ZERO;
        Self {
            buffer,
            size,
            waiting: 0,
            flying: 0,
            first: zero,
            deadline: zero,
            failures: 0,
            not_before: zero,
        }
    }

    /// `count` messages come.
    pub fn add(&mut self, count: usize, now: Duration) -> Admission {
        let most = self.buffer.messages_max;
        if self.buffer.window.is_zero() || most < self.messages().saturating_add(count) {
            return Admission::Direct;
        }
        if self.waiting == 0 {
            self.first = now;
        }
        self.waiting += count;
        self.deadline = if self.size <= self.waiting { now } else { now + self.buffer.window };
        Admission::Buffered
    }

    /// Whether what waits is to be written now.
    pub fn is_due(&self, now: Duration) -> bool {
        let deadline = self.deadline.min(self.first + self.buffer.age_max);
        0 < self.waiting && self.flying == 0 && deadline <= now && self.not_before <= now
    }

    /// Everything that waits is being written.
    pub const fn begin(&mut self) {
        self.flying = self.waiting;
        self.waiting = 0;
    }

    /// They are.
    pub const fn stored(&mut self) {
        self.flying = 0;
        self.failures = 0;
        self.not_before = Duration::ZERO;
    }

    /// It was not: `kept` of them wait again, in front of what came meanwhile, and the next try is later.
    pub fn failed(&mut self, kept: usize, now: Duration) {
        let wait = FLUSH_WAITS[self.failures.min(FLUSH_WAITS.len() - 1)];
        self.flying = 0;
        self.waiting += kept;
        self.failures += 1;
        // They have waited for long enough.
        self.deadline = now;
        self.not_before = now + wait;
    }

    /// Messages in memory, those that are being written included.
    pub const fn messages(&self) -> usize {
        self.waiting + self.flying
    }

    /// Whether some are being written.
    pub const fn is_flying(&self) -> bool {
        self.flying != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Plays arrivals (when, how many) against ticks; answers the flushes (at which tick, how many) until `end`.
    fn flushes(arrivals: &[(u64, usize)], end: u64) -> Vec<(u64, usize)> {
        let mut window = Window::new(Buffer::DEFAULT, 100);
        let mut arrivals = arrivals.iter().peekable();
        let mut flushes = Vec::new();
        for tick in (0..=end).step_by(100) {
            while let Some((at, count)) = arrivals.next_if(|(at, _)| *at < tick) {
                assert_eq!(window.add(*count, ms(*at)), Admission::Buffered);
            }
            if window.is_due(ms(tick)) {
                flushes.push((tick, window.messages()));
                window.begin();
                window.stored();
            }
        }
        flushes
    }

    #[test]
    fn the_timelines_of_the_contract() {
        assert_eq!(flushes(&[(30, 1)], 1_000), [(200, 1)], "deadline 130");
        assert_eq!(flushes(&[(10, 150)], 1_000), [(100, 150)], "tripped, one append of all");
        assert_eq!(flushes(&[(10, 60), (40, 60)], 1_000), [(100, 120)], "tripped at 40");
        let steady: Vec<(u64, usize)> = (0..=99).map(|number| (number * 50, 1)).collect();
        assert_eq!(flushes(&steady, 5_000), [(5_000, 100)], "the age, and with it the size");
        let slow: Vec<(u64, usize)> = (0..=83).map(|number| (number * 60, 1)).collect();
        assert_eq!(flushes(&slow, 5_000)[0].0, 5_000, "the deadline keeps moving until the age ends it");
    }

    #[test]
    fn a_message_after_the_size_was_reached_does_not_move_the_deadline_away() {
        assert_eq!(flushes(&[(10, 100), (90, 1)], 1_000), [(100, 101)]);
    }

    #[test]
    fn nothing_is_due_when_nothing_waits() {
        assert_eq!(flushes(&[], 1_000), []);
        assert!(!Window::new(Buffer::DEFAULT, 100).is_due(ms(10_000)));
    }

    #[test]
    fn beyond_the_bound_a_send_writes_directly() {
        let mut window = Window::new(Buffer::DEFAULT.messages_max(3), 100);
        assert_eq!(window.add(2, ms(0)), Admission::Buffered);
        assert_eq!(window.add(2, ms(0)), Admission::Direct);
        window.begin();
        assert_eq!(window.add(2, ms(0)), Admission::Direct, "what is being written counts");
        assert_eq!(window.add(1, ms(0)), Admission::Buffered);
        window.stored();
        assert_eq!(window.messages(), 1);
    }

    #[test]
    fn a_window_of_zero_is_none() {
        let mut window = Window::new(Buffer::DEFAULT.window(Duration::ZERO), 100);
        assert_eq!(window.add(1, ms(0)), Admission::Direct);
    }

    #[test]
    fn what_could_not_be_written_is_kept_and_waits_longer_each_time() {
        let mut window = Window::new(Buffer::DEFAULT, 100);
        window.add(5, ms(0));
        let mut now = ms(100);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(window.is_due(now));
            window.begin();
            assert!(!window.is_due(now), "one flush at a time");
            window.failed(5, now);
            let before = now;
            while !window.is_due(now) {
                now += TICK;
            }
            waits.push((now - before).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        window.begin();
        window.stored();
        window.add(1, now);
        assert!(window.is_due(now + TICK), "a success ends the waits");
    }

    #[test]
    fn what_came_during_a_flight_keeps_its_own_age() {
        let mut window = Window::new(Buffer::DEFAULT, 100);
        window.add(1, ms(0));
        window.begin();
        window.add(1, ms(90));
        window.stored();
        assert!(!window.is_due(ms(100)));
        assert!(window.is_due(ms(190)));
    }
}
