//! What was measured of each store, and the ratios between them.

use serde_json::{Map, Value, json};

use super::programs::{Kind, OURS};
use crate::report::median;

/// A figure of a store: every round of it.
struct Series {
    store: &'static str,
    figure: &'static str,
    values: Vec<f64>,
}

/// Everything that was measured. What is not here was not measured.
#[derive(Default)]
pub(crate) struct Figures {
    stores: Vec<(&'static str, Kind)>,
    series: Vec<Series>,
    /// What could not be measured: store, measurement, reason.
    pub(crate) failed: Vec<(&'static str, &'static str, String)>,
}

/// Whether more is better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Best {
    Highest,
    Lowest,
}

/// With whom ours is compared in a figure.
#[derive(Clone, Copy)]
enum Against {
    /// The job queue that is best in it.
    BestPeer(Best),
    /// The job queue that drains fastest.
    FastestPeer,
    /// PGMQ.
    BareTable,
    /// Another figure of ours.
    Ourselves,
    /// Nobody: the figure itself.
    Nobody,
}

/// A goal for a ratio.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn is_missed(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value < least,
            Self::AtMost(most) => most < value,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

/// A ratio: its name, the figure of ours, that of the others, with whom, and what it should be.
struct Ratio(&'static str, &'static str, &'static str, Against, Bound);

/// A ratio that could be made, and with whom.
pub(crate) struct Made {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) bound: Bound,
    pub(crate) against: Option<&'static str>,
}

const HIGHEST: Against = Against::BestPeer(Best::Highest);
const LOWEST: Against = Against::BestPeer(Best::Lowest);
const FASTEST: Against = Against::FastestPeer;
const BARE: Against = Against::BareTable;
const OURSELVES: Against = Against::Ourselves;
const NOBODY: Against = Against::Nobody;

const DRAIN: &str = "drain_per_second";
const BATCH: &str = "batch_send_per_second";
const SINGLE_64: &str = "single_send_64_per_second";
const TX_SEND: &str = "tx_send_64_per_second";
const TX_CPU: &str = "tx_send_64_server_cpu_us";
const TX_BARE_CPU: &str = "tx_bare_64_server_cpu_us";
const WAL: &str = "drain_wal_bytes";
const CALL_P50: &str = "pickup_from_call_p50_ms";
const LIFE_WAL: &str = "whole_life_wal_bytes";
const LIFE_CPU: &str = "whole_life_server_cpu_us";

#[rustfmt::skip]
const RATIOS: [Ratio; 25] = [
    Ratio("drain_vs_best_peer", DRAIN, DRAIN, HIGHEST, Bound::AtLeast(4.0)),
    Ratio("drain_vs_pgmq", DRAIN, DRAIN, BARE, Bound::AtLeast(2.5)),
    Ratio("default_drain_vs_best_peer", "default_drain_per_second", DRAIN, HIGHEST, Bound::AtLeast(1.0)),
    Ratio("cpu_vs_best_peer", "drain_server_cpu_us", "drain_server_cpu_us", LOWEST, Bound::AtMost(0.25)),
    Ratio("wal_vs_fastest_peer", WAL, WAL, FASTEST, Bound::AtMost(0.02)),
    Ratio("wal_vs_least_peer", WAL, WAL, LOWEST, Bound::AtMost(1.0)),
    Ratio("batch_send_vs_best_peer", BATCH, BATCH, HIGHEST, Bound::AtLeast(1.5)),
    Ratio("batch_send_vs_pgmq", BATCH, BATCH, BARE, Bound::AtLeast(0.7)),
    Ratio("single_send_64_vs_best_peer", SINGLE_64, SINGLE_64, HIGHEST, Bound::AtLeast(4.0)),
    Ratio("tx_send_64_vs_best_peer", TX_SEND, TX_SEND, HIGHEST, Bound::AtLeast(1.0)),
    Ratio("tx_send_cost_vs_bare", TX_CPU, TX_BARE_CPU, OURSELVES, Bound::AtMost(3.0)),
    Ratio("pickup_p50_ms", "pickup_p50_ms", "", NOBODY, Bound::AtMost(3.0)),
    Ratio("pickup_p99_ms", "pickup_p99_ms", "", NOBODY, Bound::AtMost(10.0)),
    Ratio("pickup_p50_vs_best_peer", "pickup_p50_ms", "pickup_p50_ms", LOWEST, Bound::AtMost(1.0)),
    Ratio("pickup_from_call_vs_best_peer", CALL_P50, CALL_P50, LOWEST, Bound::AtMost(1.0)),
    Ratio("whole_life_wal_vs_fastest_peer", LIFE_WAL, LIFE_WAL, FASTEST, Bound::AtMost(0.5)),
    Ratio("whole_life_wal_vs_least_peer", LIFE_WAL, LIFE_WAL, LOWEST, Bound::AtMost(1.0)),
    Ratio("whole_life_cpu_vs_fastest_peer", LIFE_CPU, LIFE_CPU, FASTEST, Bound::AtMost(0.5)),
    Ratio("whole_life_cpu_vs_least_peer", LIFE_CPU, LIFE_CPU, LOWEST, Bound::AtMost(1.0)),
    Ratio("held_snapshot_ratio", "held_snapshot_ratio", "", NOBODY, Bound::AtLeast(0.9)),
    Ratio("held_snapshot_cpu_ratio", "held_snapshot_cpu_ratio", "", NOBODY, Bound::AtMost(1.2)),
    Ratio("held_snapshot_small_ratio", "held_snapshot_small_ratio", "", NOBODY, Bound::AtLeast(0.9)),
    Ratio("held_snapshot_small_cpu_ratio", "held_snapshot_small_cpu_ratio", "", NOBODY, Bound::AtMost(1.2)),
    Ratio("backlog_10m_ratio", "backlog_10m_ratio", "", NOBODY, Bound::AtLeast(0.9)),
    Ratio("idle_queries_per_s", "idle_queries_per_s", "", NOBODY, Bound::AtMost(2.0)),
];

impl Figures {
    pub(crate) fn of(stores: impl IntoIterator<Item = (&'static str, Kind)>) -> Self {
        Self { stores: stores.into_iter().collect(), ..Self::default() }
    }

    /// Adds what a round measured.
    pub(crate) fn add(&mut self, store: &'static str, figure: &'static str, value: f64) {
        eprintln!("{store:20} {figure:32} {value:>14.3}");
        let same = |series: &&mut Series| series.store == store && series.figure == figure;
        match self.series.iter_mut().find(same) {
            Some(series) => series.values.push(value),
            None => self.series.push(Series { store, figure, values: vec![value] }),
        }
    }

    /// The median of a figure, if it was measured.
    pub(crate) fn get(&self, store: &str, figure: &str) -> Option<f64> {
        let series = self.series.iter().find(|series| series.store == store && series.figure == figure)?;
        Some(median(series.values.clone()))
    }

    /// The names of the figures, in the order in which they were first measured.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for series in &self.series {
            if !names.contains(&series.figure) {
                names.push(series.figure);
            }
        }
        names
    }

    /// The stores, ours first.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &'static str> {
        self.stores.iter().map(|(store, _)| *store)
    }

    /// The ratios of which both sides were measured.
    pub(crate) fn ratios(&self) -> Vec<Made> {
        RATIOS.iter().filter_map(|ratio| self.ratio(ratio)).collect()
    }

    fn ratio(&self, Ratio(name, ours, theirs, against, bound): &Ratio) -> Option<Made> {
        let ours = self.get(OURS, ours)?;
        let other = match against {
            Against::Nobody => return Some(Made { name, value: ours, bound: *bound, against: None }),
            Against::BestPeer(best) => self.best_peer(theirs, *best)?,
            Against::FastestPeer => self.best_peer(DRAIN, Best::Highest)?,
            Against::Ourselves => OURS,
            Against::BareTable => self.stores.iter().find(|(_, kind)| *kind == Kind::BareTable)?.0,
        };
        let value = ours / self.get(other, theirs)?;
        value.is_finite().then_some(Made { name, value, bound: *bound, against: Some(other) })
    }

    fn best_peer(&self, figure: &str, best: Best) -> Option<&'static str> {
        let peers = self.stores.iter().filter(|(_, kind)| *kind == Kind::JobQueue);
        let measured = peers.filter_map(|(store, _)| Some((*store, self.get(store, figure)?)));
        let by_value = |(_, one): &(&str, f64), (_, other): &(&str, f64)| one.total_cmp(other);
        let found = match best {
            Best::Highest => measured.max_by(by_value),
            Best::Lowest => measured.min_by(by_value),
        };
        found.map(|(store, _)| store)
    }

    /// The ratios, and below `raw` every figure of every store.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let digits = |value: f64| json!((value * 1_000.0).round() / 1_000.0);
        let mut object = Map::new();
        let mut against = Map::new();
        for made in self.ratios() {
            object.insert(made.name.to_owned(), digits(made.value));
            against.extend(made.against.map(|other| (made.name.to_owned(), json!(other))));
        }
        object.insert("against".to_owned(), Value::Object(against));
        let mut raw = Map::new();
        for (store, _) in &self.stores {
            let of_store = self.series.iter().filter(|series| series.store == *store);
            let figures =
                of_store.map(|series| (series.figure.to_owned(), digits(median(series.values.clone()))));
            raw.insert((*store).to_owned(), Value::Object(figures.collect()));
        }
        object.insert("raw".to_owned(), Value::Object(raw));
        let failed = self.failed.iter();
        let failed =
            failed.map(|(store, what, why)| json!({ "store": store, "measurement": what, "why": why }));
        object.insert("not_measured".to_owned(), failed.collect());
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Figures {
        let stores = [
            (OURS, Kind::Ours),
            ("quick", Kind::JobQueue),
            ("thrifty", Kind::JobQueue),
            ("bare", Kind::BareTable),
        ];
        let mut figures = Figures::of(stores);
        for (store, rate, wal) in
            [(OURS, 100.0, 1.0), ("quick", 20.0, 100.0), ("thrifty", 10.0, 4.0), ("bare", 40.0, 0.5)]
        {
            figures.add(store, DRAIN, rate);
            figures.add(store, WAL, wal);
        }
        figures
    }

    #[track_caller]
    fn check(figures: &Figures, name: &str, expected: Option<(f64, Option<&str>)>) {
        let ratios = figures.ratios();
        let made = ratios.iter().find(|made| made.name == name).map(|made| (made.value, made.against));
        assert_eq!(made, expected, "{name}");
    }

    #[test]
    fn the_best_peer_is_a_job_queue_and_not_the_bare_table() {
        check(&measured(), "drain_vs_best_peer", Some((5.0, Some("quick"))));
        check(&measured(), "drain_vs_pgmq", Some((2.5, Some("bare"))));
    }

    #[test]
    fn the_fastest_peer_is_the_one_that_drains_fastest() {
        check(&measured(), "wal_vs_fastest_peer", Some((0.01, Some("quick"))));
        check(&measured(), "wal_vs_least_peer", Some((0.25, Some("thrifty"))));
    }

    #[test]
    fn a_cost_is_a_ratio_of_two_figures_of_ours() {
        let mut figures = measured();
        figures.add(OURS, TX_BARE_CPU, 50.0);
        figures.add(OURS, TX_CPU, 75.0);
        check(&figures, "tx_send_cost_vs_bare", Some((1.5, Some(OURS))));
    }

    #[test]
    fn what_was_not_measured_has_no_ratio() {
        check(&measured(), "cpu_vs_best_peer", None);
        check(&Figures::of([(OURS, Kind::Ours)]), "drain_vs_best_peer", None);
    }

    #[test]
    fn of_several_rounds_the_median_counts() {
        let mut figures = measured();
        figures.add(OURS, DRAIN, 60.0);
        figures.add(OURS, DRAIN, 80.0);
        check(&figures, "drain_vs_best_peer", Some((4.0, Some("quick"))));
        assert_eq!(figures.json()["raw"][OURS][DRAIN], 80.0);
    }
}
