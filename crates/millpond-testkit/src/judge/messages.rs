//! What became of each message: I1, I2, I3, I4, and the silent ways out of I14.

use super::Invariant;
use super::breach::Subject;
use super::history::Effects;
use super::leases::Folded;
use super::record::{Record, Said, Sent, Trail};

/// Messages whose send returned and of which a lane has never heard.
pub(super) fn close_untouched(record: &mut Record) {
    for (id, sent) in record.sent.iter().filter(|(_, sent)| sent.ok) {
        for lane in record.queues[sent.queue].lanes.iter().filter(|lane| record.lanes[**lane].durable) {
            if !record.trails.contains_key(&(*id, *lane)) {
                record.counters.lost += 1;
                record.breaches.add(Invariant::I1, Subject::Message(*id), "sent, and never seen again");
            }
        }
    }
}

pub(super) fn close(record: &mut Record, id: u128, lane: usize, trail: &Trail, folded: &Folded) {
    let lane = &record.lanes[lane];
    let effects = record.queues[lane.queue].plan.effects;
    let sent = record.sent.get(&id);
    let mut broken = |invariant, why: String| record.breaches.add(invariant, Subject::Message(id), why);
    origin(sent, lane.queue, trail, folded, &mut broken);

    let doubles = trail.rows.max(trail.reported).saturating_sub(1);
    record.counters.double_effects += u64::from(doubles);
    if doubles > 0 {
        broken(Invariant::I4, format!("its effect was committed {} times", doubles + 1));
    }
    amounts(sent, effects, trail, &mut broken);
    exits(trail, folded, &mut broken);

    if done(effects, trail, folded) || trail.left() {
        return;
    }
    if lane.durable && sent.is_some_and(|sent| sent.ok) {
        record.counters.lost += 1;
        broken(Invariant::I1, "sent, and neither done nor dead nor cancelled".into());
    } else if folded.leases.iter().any(|lease| lease.sure) {
        broken(Invariant::I14, "leased, and gone without a trace".into());
    }
}

fn origin(
    sent: Option<&Sent>,
    queue: usize,
    trail: &Trail,
    folded: &Folded,
    broken: &mut impl FnMut(Invariant, String),
) {
    let seen = trail.rows > 0 || trail.reported > 0 || trail.left() || !folded.leases.is_empty();
    match sent {
        _ if !seen => {}
        None => broken(Invariant::I2, "nobody sent it".into()),
        Some(sent) if sent.queue != queue => broken(Invariant::I2, "it was sent to another queue".into()),
        Some(sent) if sent.failed() => broken(Invariant::I3, "its send failed for certain".into()),
        Some(_) => {}
    }
}

fn amounts(sent: Option<&Sent>, effects: Effects, trail: &Trail, broken: &mut impl FnMut(Invariant, String)) {
    if effects == Effects::Table && trail.reported > 0 && trail.rows == 0 {
        broken(Invariant::I4, "an effect that was reported as committed is not in the table".into());
    }
    if trail.dead > 0 && (trail.rows > 0 || trail.reported > 0) {
        broken(Invariant::I4, "it is dead, and its effect was committed".into());
    }
    let Some(amount) = sent.and_then(|sent| sent.amount).filter(|_| trail.rows > 0) else { return };
    if amount.saturating_mul(i64::from(trail.rows)) != trail.sum {
        broken(Invariant::I4, format!("its effect is {}, not {amount}", trail.sum));
    }
}

fn exits(trail: &Trail, folded: &Folded, broken: &mut impl FnMut(Invariant, String)) {
    if trail.dead + trail.cancelled > 1 {
        broken(Invariant::I14, format!("it left {} times", trail.dead + trail.cancelled));
    }
    let last = folded.settles.iter().filter(|settle| settle.sure).max_by_key(|settle| settle.delivery);
    if last.is_some_and(|last| last.said == Said::DeadLetter) && !trail.left() {
        broken(Invariant::I14, "dead-lettered, and there is no dead letter".into());
    }
}

fn done(effects: Effects, trail: &Trail, folded: &Folded) -> bool {
    match effects {
        Effects::Table => trail.rows > 0,
        Effects::Reported => trail.reported > 0 || trail.perhaps,
        Effects::None => folded.settles.iter().any(|settle| settle.said == Said::Ack),
    }
}
