//! A worker's loop: what wakes it, and what it does then. It waits for hints, answers to leases, ended handlers
//! and the clock, and never for a handler.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Result};
use millpond_core::message::Token;
use millpond_core::reason::Release;
use millpond_core::store::{Lease, LeaseRequest, Pulse, QueueId};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::ids;
use crate::job::CancelCause;
use crate::patience::Patience;
use crate::pond::Pond;
use crate::pulse::Activity;
use crate::renewal::LeaseWatch;
use crate::worker::hands::Hands;
use crate::worker::line::{Line, release, suspect_turns, take_claim};
use crate::worker::orders::Orders;
use crate::worker::settler::Endings;
use crate::worker::slot;
use crate::worker::start;
use crate::worker::suspects::{Answer, Suspects};
use crate::worker::{Stopped, Worker};

/// How often running handlers are compared with their time limits.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// How long a message may wait unstarted in this worker while every slot is busy, before it is given back.
const UNSTARTED_MAX: Duration = Duration::from_secs(1);

/// How long the last verdicts of a stop may take to be recorded.
const LAST_SETTLE: Duration = Duration::from_secs(5);

/// Runs `worker` until `shutdown`, and in a hurry when `hurry` resolves too.
pub(crate) async fn run(
    worker: Worker,
    shutdown: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) -> Result<Stopped> {
    let mut running = start::start(worker).await?;
    let (mut shutdown, mut hurry) = (pin!(shutdown), pin!(hurry));
    running.work(shutdown.as_mut()).await;
    Ok(running.stop(hurry.as_mut()).await)
}

/// The answer to a lease.
pub(super) struct Answered {
    queue: usize,
    token: Token,
    suspect: bool,
    lease: Result<Lease>,
}

/// A worker that runs.
pub(super) struct Loop {
    pub(super) pond: Pond,
    pub(super) id: String,
    pub(super) queues: Vec<Line>,
    pub(super) hands: Arc<Hands>,
    pub(super) lease: Arc<LeaseWatch>,
    pub(super) endings: Arc<Endings>,
    pub(super) suspects: Suspects,
    pub(super) leases: JoinSet<Answered>,
    pub(super) slots: JoinSet<()>,
    pub(super) slot_places: std::collections::HashMap<tokio::task::Id, (usize, usize)>,
    pub(super) low: Arc<Notify>,
    pub(super) settled: Arc<Notify>,
    pub(super) pulses: watch::Receiver<Arc<Pulse>>,
    pub(super) activity: Arc<Activity>,
    pub(super) busy: Arc<AtomicU32>,
    pub(super) patience: Patience,
    pub(super) not_before: Option<Instant>,
    /// What an operator wants of this worker, as the store said it last.
    pub(super) orders: Arc<Orders>,
    /// Ends the loops beside this one.
    pub(super) stop: CancellationToken,
    pub(super) settler: tokio::task::JoinHandle<()>,
    pub(super) hooks: Option<tokio::task::JoinHandle<()>>,
    pub(super) shutdown_timeout: Duration,
    pub(super) cancel_grace: Duration,
}

impl Loop {
    /// Works until `shutdown`, or until it is asked to stop.
    async fn work(&mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) {
        let (pond, asked) = (self.pond.clone(), self.orders.stop.clone());
        let (mut woken, orders) = (pond.woken(), Arc::clone(&self.orders));
        self.queues.iter_mut().for_each(|line| line.may_have_more = true);
        loop {
            self.lease_more();
            let hold = self.not_before.map(|until| until.saturating_duration_since(Instant::now()));
            let room = self.next_look_for_room();
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                () = asked.cancelled() => return,
                Some(answer) = self.leases.join_next() => self.leased(answer),
                queues = woken.next() => self.woken(&queues),
                () = self.low.notified() => {}
                () = self.settled.notified() => self.settled(),
                () = orders.released.notified() => {}
                Ok(()) = self.pulses.changed() => self.pulsed(),
                Some(ended) = self.slots.join_next_with_id() => self.slot_ended(ended.map(|(id, ())| id)),
                () = sleep(hold.unwrap_or(WATCH_EVERY)), if hold.is_some() || self.is_busy() => self.not_before = None,
                () = sleep(room.unwrap_or(WATCH_EVERY)), if room.is_some() => {}
            }
            self.watch_handlers();
        }
    }

    /// Begins the leases for which there is room.
    fn lease_more(&mut self) {
        if self.orders.is_draining() || self.not_before.is_some_and(|until| Instant::now() < until) {
            return;
        }
        if self.lease.is_over() {
            // What is leased now could be taken over at once.
            self.not_before = Some(Instant::now() + WATCH_EVERY);
            return;
        }
        let left = self.hands.left();
        // Also without a settlement: a claim that was taken over leaves the hands by itself.
        self.suspects = self.suspects.settled(left.suspects);
        let now = Instant::now();
        let can_ask = |line: &mut Line| {
            line.has_suspects && line.limited.hold(now).is_none() && line.next_lease().is_some()
        };
        let with_suspects = self.queues.iter_mut().position(can_ask);
        if let Some((queue, hands_empty)) = self.suspects.ask(with_suspects, left.in_hand, self.leases.len())
        {
            match self.queues[queue].next_lease() {
                Some((messages, bytes)) => self.begin_lease(queue, messages, bytes, Some(hands_empty)),
                // Its slots are stuck: the other queues must not wait for them.
                None => self.suspects = Suspects::None,
            }
        }
        if !self.suspects.ordinary_may_lease() {
            return;
        }
        for queue in 0..self.queues.len() {
            let line = &mut self.queues[queue];
            if line.leasing || !line.may_have_more || line.limited.hold(now).is_some() {
                continue;
            }
            if let Some((messages, bytes)) = line.next_lease() {
                self.begin_lease(queue, messages, bytes, None);
            }
        }
    }

    /// Asks for a lease; `suspect` says that it is from the suspect lane, and whether the hands are empty.
    fn begin_lease(&mut self, queue: usize, messages_max: usize, bytes_max: usize, suspect: Option<bool>) {
        let Ok(token) = ids::token() else {
            tracing::error!("the system has no random numbers: nothing can be leased");
            self.not_before = Some(Instant::now() + self.patience.wait());
            return;
        };
        let line = &mut self.queues[queue];
        match suspect {
            Some(_) => self.suspects = Suspects::Asking { queue },
            None => line.asks(),
        }
        line.notes_in_hand(&self.hands);
        let request = LeaseRequest {
            queue: line.station.queue.id,
            worker: self.id.clone(),
            token,
            turns: if suspect.is_some() { suspect_turns() } else { line.next_turn() },
            messages_max,
            bytes_max,
            hands_empty: suspect.unwrap_or(false),
            one_by_one: line.station.tuning.slots() == 1,
        };
        self.hands.register(token);
        let store = Arc::clone(self.pond.store());
        let suspect = suspect.is_some();
        self.leases
            .spawn(async move { Answered { queue, token, suspect, lease: store.lease(request).await } });
    }

    fn leased(&mut self, answer: std::result::Result<Answered, tokio::task::JoinError>) {
        let Ok(Answered { queue, token, suspect, lease }) = answer else {
            tracing::error!(
                "a lease panicked: its claim, if there is one, is given back at the next renewal"
            );
            self.queues.iter_mut().for_each(Line::may_ask_again);
            self.suspects = self.suspects.answered(Answer::Nothing);
            return;
        };
        if lease.is_ok() {
            self.patience.reset();
        }
        let line = &mut self.queues[queue];
        match &lease {
            Ok(Lease::Empty | Lease::Paused) => line.found_nothing(suspect),
            Ok(Lease::Limited { wait, .. }) => line.found_no_room(suspect, *wait, &self.hands),
            _ if suspect => {}
            _ => line.may_ask_again(),
        }
        let answer = match lease {
            Ok(Lease::Claim(claim)) => {
                self.activity.found();
                let group = claim.messages.first().map_or(0, |message| message.suspect);
                take_claim(line, &self.hands, &self.endings, claim);
                Answer::Group(group)
            }
            Ok(Lease::EmptyHandsFirst) => {
                self.hands.drop_claim(token);
                Answer::EmptyHandsFirst
            }
            Ok(Lease::Empty | Lease::Paused | Lease::Limited { .. }) => {
                self.hands.drop_claim(token);
                Answer::Nothing
            }
            Err(error) => {
                let name = &line.station.queue.name;
                tracing::warn!(queue = %name, %error, cause = error.causes(), "cannot lease");
                if error.code() == Code::SchemaNewer {
                    tracing::error!("a later release has migrated the store: this worker stops");
                    self.orders.stop.cancel();
                }
                // It may have been granted all the same; then the next renewal finds and releases it.
                self.hands.drop_claim(token);
                self.not_before = Some(Instant::now() + self.patience.wait());
                Answer::Nothing
            }
        };
        if suspect {
            self.suspects = self.suspects.answered(answer);
        }
    }

    fn woken(&mut self, queues: &[QueueId]) {
        for line in self.queues.iter_mut().filter(|line| queues.contains(&line.station.queue.id)) {
            line.may_have_more = true;
        }
    }

    fn settled(&mut self) {
        self.queues.iter_mut().for_each(|line| line.settled(&self.hands));
    }

    /// How long until a queue that found no room may be asked again, if one waits for that.
    fn next_look_for_room(&self) -> Option<Duration> {
        let now = Instant::now();
        self.queues.iter().filter_map(|line| line.limited.hold(now)).min()
    }

    fn pulsed(&mut self) {
        let pulse = Arc::clone(&self.pulses.borrow_and_update());
        for line in &mut self.queues {
            line.pulsed(&pulse);
        }
    }

    fn is_busy(&self) -> bool {
        self.hands.left().in_hand != 0
    }

    /// Ends handlers whose time is up, and gives back what waits behind slow ones.
    fn watch_handlers(&mut self) {
        let now = Instant::now();
        let mut busy = 0;
        for line in &mut self.queues {
            line.station.give_up_overdue(now);
            let (running, stuck) = line.station.board.counts();
            busy += u32::try_from(running).unwrap_or(u32::MAX);
            let waited = line.station.feed.oldest().map(|since| now.saturating_duration_since(since));
            if line.station.tuning.slots() <= running + stuck
                && waited.is_some_and(|waited| UNSTARTED_MAX < waited)
            {
                line.speed.at_least(line.station.board.longest(now).unwrap_or(UNSTARTED_MAX));
                release(&line.station, line.station.feed.drain(), Release::Limited);
            }
        }
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// A slot's task ended although the worker runs: it was aborted, and is begun again.
    fn slot_ended(&mut self, ended: std::result::Result<tokio::task::Id, tokio::task::JoinError>) {
        let id = ended.unwrap_or_else(|error| error.id());
        if let Some((queue, number)) = self.slot_places.remove(&id) {
            self.begin_slot(queue, number);
        }
    }

    pub(super) fn begin_slot(&mut self, queue: usize, number: usize) {
        let station = Arc::clone(&self.queues[queue].station);
        let task = self.slots.spawn(slot::run(station, number));
        self.slot_places.insert(task.id(), (queue, number));
    }

    /// Two phases: let handlers end; then tell them to stop, and give back what is left.
    async fn stop(mut self, mut hurry: Pin<&mut impl Future<Output = ()>>) -> Stopped {
        let mut stopped = Stopped::default();
        for line in &self.queues {
            release(&line.station, line.station.feed.close(), Release::Shutdown);
        }
        let draining = timeout(self.shutdown_timeout, self.drain());
        let in_time = tokio::select! {
            drained = draining => drained.is_ok(),
            () = &mut hurry => false,
        };
        if !in_time {
            self.queues.iter().for_each(|line| line.station.board.cancel(None, CancelCause::Shutdown));
            if timeout(self.cancel_grace, self.drain()).await.is_err() {
                stopped.given_up = self.give_back_running();
            }
        }
        if timeout(LAST_SETTLE, self.all_settled()).await.is_err() {
            stopped.unrecorded = self.hands.left().in_hand;
            tracing::warn!("the last verdicts could not be recorded: their messages will be delivered again");
        }
        self.slots.abort_all();
        self.stop.cancel();
        self.settler.abort();
        if let Some(hooks) = self.hooks.take() {
            // It has a limit of its own.
            let _ = hooks.await;
        }
        if let Err(error) = self.pond.store().end_worker(self.id.clone()).await {
            tracing::warn!(%error, "cannot write that this worker has ended; its lease will run out");
        }
        stopped
    }

    /// Until no handler runs and no lease is under way.
    async fn drain(&mut self) {
        loop {
            self.watch_handlers();
            if self.busy.load(Ordering::Relaxed) == 0 && self.leases.is_empty() {
                return;
            }
            tokio::select! {
                Some(answer) = self.leases.join_next() => self.leased(answer),
                () = self.settled.notified() => {}
                () = sleep(WATCH_EVERY) => {}
            }
        }
    }

    async fn all_settled(&self) {
        while self.hands.left().in_hand != 0 || !self.endings.is_empty() {
            self.settled.notified().await;
        }
    }

    /// Gives back what still runs; answers how many that were.
    fn give_back_running(&self) -> usize {
        let mut count = 0;
        for line in &self.queues {
            for (envelope, ending, fault, run) in line.station.board.release_all(Instant::now()) {
                tracing::warn!(queue = %line.station.queue.name, id = %envelope.id, "still running at the stop");
                line.station.settle(&envelope, ending, fault, run);
                count += 1;
            }
        }
        count
    }
}

/// A worker whose future is dropped renews nothing any more: its messages are reclaimed.
impl Drop for Loop {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::Settlement;
    use millpond_core::message::Offset;
    use millpond_core::reason::{Back, Failure};
    use millpond_core::settle::Verdict;
    use millpond_core::view::Wish;

    use super::*;
    use crate::fake::{FakeStore, held, leased};
    use crate::job::{Job, JobContext};
    use crate::pond::Pond;
    use crate::worker::board::Envelope;
    use crate::worker::{Worker, start};

    /// How long a test waits for what must come.
    const LIMIT: Duration = Duration::from_secs(10);

    const MAIL: crate::queue::Queue<u32> = crate::queue::Queue::new("mail");

    /// The loop of a worker with one slot for a queue in which nothing is.
    async fn idle() -> Loop {
        let worker = Worker::new(&Pond::new(Arc::new(FakeStore::default()))).concurrency(1);
        start::start(worker.handle(&MAIL, async |_: Job<u32>| Verdict::Ack)).await.unwrap()
    }

    #[tokio::test]
    async fn a_hint_that_comes_while_a_lease_finds_nothing_is_kept() {
        let mut loop_ = idle().await;
        loop_.lease_more();
        let mut empty = async |hint: &[QueueId]| {
            let answer = loop_.leases.join_next().await.expect("a lease is under way");
            loop_.woken(hint);
            loop_.leased(answer);
            loop_.lease_more();
            loop_.leases.len()
        };
        assert_eq!(empty(&[QueueId(1)]).await, 1, "the message may have come after the lease had looked");
        assert_eq!(empty(&[]).await, 0);
    }

    /// Answers the leases under way, and begins the next ones; answers how many.
    async fn answer_all(loop_: &mut Loop) -> usize {
        while let Some(answer) = loop_.leases.join_next().await {
            loop_.leased(answer);
        }
        loop_.lease_more();
        loop_.leases.len()
    }

    #[tokio::test]
    async fn a_queue_without_room_waits_and_no_hint_makes_it_ask() {
        let store = Arc::new(FakeStore::default());
        store.leave_no_room();
        let worker = Worker::new(&Pond::new(store)).concurrency(1);
        let mut loop_ = start::start(worker.handle(&MAIL, async |_: Job<u32>| Verdict::Ack)).await.unwrap();
        loop_.lease_more();
        assert_eq!(answer_all(&mut loop_).await, 0);
        loop_.woken(&[QueueId(1)]);
        loop_.lease_more();
        assert!(loop_.leases.is_empty() && loop_.next_look_for_room().is_some());
        loop_.queues[0].limited = Default::default();
        loop_.lease_more();
        assert_eq!(loop_.leases.len(), 1, "after its wait it asks again, without a hint");
    }

    #[tokio::test]
    async fn a_settlement_of_its_own_makes_it_look_for_room_at_once() {
        let store = Arc::new(FakeStore::default());
        store.leave_no_room();
        store.give(leased(b"1"));
        let worker = Worker::new(&Pond::new(store)).concurrency(2);
        let limited = MAIL.concurrency(1);
        let handler = async |_: Job<u32>| std::future::pending::<Verdict>().await;
        let mut loop_ = start::start(worker.handle(&limited, handler)).await.unwrap();
        loop_.lease_more();
        assert_eq!(answer_all(&mut loop_).await, 1, "it has a slot left");
        assert_eq!(answer_all(&mut loop_).await, 0);
        loop_.settled();
        loop_.lease_more();
        assert!(loop_.leases.is_empty(), "what was settled was not of this queue");
        let token = loop_.hands.tokens()[0];
        loop_.hands.settled(token, 1);
        loop_.settled();
        loop_.lease_more();
        assert_eq!(loop_.leases.len(), 1);
    }

    #[tokio::test]
    async fn a_suspect_that_was_taken_over_unstarted_is_not_waited_for() {
        let mut loop_ = idle().await;
        loop_.suspects = Suspects::Alone;
        loop_.lease_more();
        assert_eq!(loop_.leases.len(), 1, "nothing is in hand, so nothing will be settled");
    }

    #[tokio::test]
    async fn a_queue_whose_slots_are_stuck_does_not_hold_up_the_others_with_its_suspect() {
        let mut loop_ = idle().await;
        loop_.suspects = Suspects::Emptying { queue: 0 };
        let board = &loop_.queues[0].station.board;
        let context = JobContext::new(loop_.pond.clone(), held(), Offset(0), Duration::ZERO);
        board.put(0, Envelope::of(held(), &leased(b"1"), None), context, Instant::now());
        assert_eq!(board.release_all(Instant::now()).len(), 1, "its handler did not return");
        loop_.lease_more();
        assert!(loop_.suspects.ordinary_may_lease());
    }

    #[tokio::test]
    async fn an_aborted_slot_fails_its_attempt_and_is_begun_again() {
        let store = Arc::new(FakeStore::default());
        let began = Arc::new(Notify::new());
        let tell = Arc::clone(&began);
        let handler = move |job: Job<u32>| {
            tell.notify_one();
            async move {
                if job.body == 1 {
                    std::future::pending::<()>().await;
                }
                Verdict::Ack
            }
        };
        let worker = Worker::new(&Pond::new(store.clone())).concurrency(1).handle(&MAIL, handler);
        let mut loop_ = start::start(worker).await.unwrap();
        store.give(leased(b"1"));
        timeout(LIMIT, loop_.work(pin!(began.notified()))).await.expect("the handler begins");
        loop_.slots.abort_all();
        store.give(leased(b"2"));
        timeout(LIMIT, loop_.work(pin!(began.notified()))).await.expect("the slot works again");
        loop_.stop(pin!(std::future::pending::<()>())).await;

        let settled: Vec<Settlement> = store.settled().into_iter().map(|item| item.settlement).collect();
        assert_eq!(settled.len(), 2, "{settled:?}");
        let failed = |settled: &Settlement| match settled {
            Settlement::Again { attempt, back, .. } => (*attempt, *back) == (1, Back::Failed(Failure::Error)),
            _ => false,
        };
        assert!(settled.iter().any(failed) && settled.contains(&Settlement::Done), "{settled:?}");
    }
    /// What a handler's error becomes that it returns when it is told to stop, with the first cause it was told.
    async fn stopped_by(
        worker: impl FnOnce(Worker) -> Worker,
        shutdown: bool,
    ) -> (Settlement, Option<CancelCause>) {
        let store = Arc::new(FakeStore::default());
        let (began, seen) = (Arc::new(Notify::new()), Arc::new(std::sync::Mutex::new(None)));
        let (tell, cause) = (Arc::clone(&began), Arc::clone(&seen));
        let handler = move |job: Job<u32>| {
            let cause = Arc::clone(&cause);
            tell.notify_one();
            async move {
                job.cancelled().await;
                *cause.lock().unwrap() = job.cancel_cause();
                Err::<(), _>("told to stop")
            }
        };
        let queue = MAIL.timeout(Duration::from_secs(60));
        let base = Worker::new(&Pond::new(store.clone())).concurrency(1).handle(&queue, handler);
        let mut loop_ = start::start(worker(base)).await.unwrap();
        store.give(leased(b"1"));
        if shutdown {
            timeout(LIMIT, loop_.work(pin!(began.notified()))).await.expect("the handler begins");
        } else {
            let settled = Arc::clone(&loop_.settled);
            timeout(LIMIT, loop_.work(pin!(settled.notified()))).await.expect("it is settled");
        }
        let stopped = loop_.stop(pin!(std::future::ready(()))).await;
        assert!(stopped.is_clean());
        let cause = *seen.lock().unwrap();
        (store.settled_within(LIMIT).remove(0), cause)
    }

    #[tokio::test]
    async fn an_error_of_a_handler_that_the_stop_told_to_stop_gives_the_attempt_back() {
        let (settled, cause) = stopped_by(|worker| worker, true).await;
        assert_eq!(cause, Some(CancelCause::Shutdown));
        let Settlement::Again { attempt: 0, releases: 1, back, .. } = settled else { panic!("{settled:?}") };
        assert_eq!(back, Back::Released(Release::Shutdown));
    }

    #[tokio::test]
    async fn the_shorter_of_two_timeouts_ends_a_run_and_its_attempt_counts() {
        let (settled, cause) = stopped_by(|worker| worker.timeout(Duration::from_millis(1)), false).await;
        assert_eq!(cause, Some(CancelCause::Timeout));
        let Settlement::Again { attempt: 1, back, .. } = settled else { panic!("{settled:?}") };
        assert_eq!(back, Back::Failed(Failure::Timeout));
    }

    #[tokio::test]
    async fn a_worker_stops_when_it_is_asked_to_from_elsewhere() {
        let mut loop_ = idle().await;
        loop_.orders.hear(Some(Wish::Restart));
        timeout(LIMIT, loop_.work(pin!(std::future::pending()))).await.expect("it was asked to");
    }
}
