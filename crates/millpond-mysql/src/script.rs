//! Statements that go to the server together, in as few packets as its limit allows, and so in as few round trips.

use crate::connection::Target;
use crate::error::Tried;
use crate::literal::{Cell, Literal, Param};
use crate::sql::Piece;

use millpond_core::error::{Code, Error};

/// What a packet has beside the statements.
const PACKET_HEAD_BYTES: usize = 64;

/// The time of the server, in microseconds since 1970, whatever the session's time zone is: at the start of a statement.
pub(crate) const SERVER_NOW: &[u8] = b"timestampdiff(microsecond,'1970-01-01',utc_timestamp(6))";

/// Statements that one packet takes to the server.
#[derive(Debug, Default)]
pub(crate) struct Packet {
    pub(crate) text: Vec<u8>,
    /// One answer for each comes back.
    pub(crate) statements: usize,
}

/// Statements in the order in which they are run; after an error none is.
pub(crate) struct Script<'t> {
    target: &'t Target,
    packet_bytes_max: usize,
    packets: Vec<Packet>,
    /// The number of statements so far.
    statements: usize,
}

impl<'t> Script<'t> {
    /// An empty one.
    pub(crate) fn new(target: &'t Target) -> Self {
        let packet_bytes_max = target.packet_bytes_max().saturating_sub(PACKET_HEAD_BYTES);
        Self { target, packet_bytes_max, packets: Vec::new(), statements: 0 }
    }

    /// What is to be sent.
    pub(crate) fn into_packets(self) -> Vec<Packet> {
        self.packets
    }

    /// Adds a statement; answers its place among the answers.
    ///
    /// # Errors
    ///
    /// `body-too-large` when it alone is larger than the server's packets may be.
    pub(crate) fn add(&mut self, name: &str, params: &[Param<'_>]) -> Tried<usize> {
        let mut text = Vec::new();
        self.write(self.target.statements.get(name), params, &mut text);
        self.push(text)
    }

    /// Begins a transaction that writes: refused once a later release has migrated.
    pub(crate) fn begin(&mut self) -> Tried<()> {
        self.step("begin")?;
        self.add("still_ours", &[]).map(drop)
    }

    /// Adds a statement that has no parameters and no tables.
    pub(crate) fn step(&mut self, text: &str) -> Tried<usize> {
        self.push(text.as_bytes().to_vec())
    }

    /// Adds a statement over rows; as many statements as their size asks for, and none if there are no rows. Answers
    /// the places of their answers.
    ///
    /// # Errors
    ///
    /// `body-too-large` when one row is larger than the server's packets may be.
    pub(crate) fn add_rows<'r, const COLUMNS: usize>(
        &mut self,
        name: &str,
        params: &[Param<'_>],
        rows: impl IntoIterator<Item = [Cell<'r>; COLUMNS]>,
    ) -> Tried<std::ops::Range<usize>> {
        let target = self.target;
        let pieces = target.statements.get(name);
        let place = pieces.iter().position(|piece| matches!(piece, Piece::Rows(_)));
        let place = place.unwrap_or_else(|| panic!("`{name}` takes no rows"));
        let Piece::Rows(template) = &pieces[place] else { unreachable!("it was looked for") };
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        self.write(&pieces[..place], params, &mut head);
        self.write(&pieces[place + 1..], params, &mut tail);
        let first = self.statements;
        let mut text: Vec<u8> = Vec::new();
        let mut row_text = Vec::new();
        for row in rows {
            row_text.clear();
            self.write_row(template, &row, &mut row_text);
            let used = self.packets.last().map_or(0, |packet| packet.text.len());
            if !text.is_empty() && self.packet_bytes_max < text.len() + row_text.len() + tail.len() + used + 2
            {
                text.extend_from_slice(&tail);
                self.push(std::mem::take(&mut text))?;
            }
            if text.is_empty() {
                text.extend_from_slice(&head);
            } else {
                text.push(b',');
            }
            text.extend_from_slice(&row_text);
        }
        if !text.is_empty() {
            text.extend_from_slice(&tail);
            self.push(text)?;
        }
        Ok(first..self.statements)
    }

    fn push(&mut self, text: Vec<u8>) -> Tried<usize> {
        if self.packet_bytes_max < text.len() {
            let why = format!(
                "it takes {} bytes, and the server takes packets of {} (max_allowed_packet)",
                text.len(),
                self.target.packet_bytes_max()
            );
            return Err(Error::new(Code::BodyTooLarge, "send a statement").because(why).into());
        }
        let fits = |packet: &Packet| packet.text.len() + 1 + text.len() <= self.packet_bytes_max;
        match self.packets.last_mut().filter(|packet| fits(packet)) {
            Some(packet) => {
                packet.text.push(b';');
                packet.text.extend_from_slice(&text);
                packet.statements += 1;
            }
            None => self.packets.push(Packet { text, statements: 1 }),
        }
        self.statements += 1;
        Ok(self.statements - 1)
    }

    fn write(&self, pieces: &[Piece], params: &[Param<'_>], out: &mut Vec<u8>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Param(place) => params[*place].write(out),
                Piece::Now => self.write_now(out),
                Piece::Rows(_) => panic!("a statement over rows is added with its rows"),
            }
        }
    }

    fn write_row(&self, pieces: &[Piece], row: &[Cell<'_>], out: &mut Vec<u8>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Param(place) => row[*place].write(out),
                Piece::Now => self.write_now(out),
                Piece::Rows(_) => panic!("rows are not nested"),
            }
        }
    }

    fn write_now(&self, out: &mut Vec<u8>) {
        match &self.target.clock {
            Some(clock) => clock.micros().write(out),
            None => out.extend_from_slice(SERVER_NOW),
        }
    }
}
