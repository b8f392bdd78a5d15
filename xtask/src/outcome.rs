//! What the last line of a program must say: its exit code alone would also be good of a run that did nothing.

use serde_json::Value;

/// The end of a crash test: something was sent, something was killed, and every counter of what must not happen is 0.
///
/// # Errors
///
/// What did not hold.
pub fn crash_test(line: &str) -> Result<(), String> {
    let end = object(line)?;
    for key in ["lost", "double_effects", "order_violations", "left_in_transaction"] {
        is(&end, key, &0.into())?;
    }
    is(&end, "unfinished", &false.into())?;
    is(&end, "sabotage_caught", &end["sabotage_total"])?;
    positive(&end, "kills")?;
    positive(&end, "sent")
}

/// The ways in which business transactions are rolled back.
const WAYS: [&str; 6] = ["error", "dropped", "killed", "deadlock", "savepoint", "serialisation"];

/// The end of a run of business transactions: some were committed, some rolled back in every way, a message was delivered
/// exactly if its transaction was committed, and every known bug was caught.
///
/// # Errors
///
/// What did not hold.
pub fn transactions(line: &str) -> Result<(), String> {
    let end = object(line)?;
    for key in ["rolled_back_delivered", "committed_missing", "unkept"] {
        is(&end, key, &0.into())?;
    }
    is(&end, "unfinished", &false.into())?;
    is(&end, "sabotage_caught", &end["sabotage_total"])?;
    for key in ["sabotage_total", "kills", "committed", "delivered"] {
        positive(&end, key)?;
    }
    WAYS.into_iter()
        .try_for_each(|way| positive(&end["rolled_back"], way).map_err(|why| format!("`rolled_back`: {why}")))
}

/// The end of a demo: every message that was sent is done or a dead letter.
///
/// # Errors
///
/// What did not hold.
pub fn demo(line: &str) -> Result<(), String> {
    let end = object(line)?;
    is(&end, "lost", &0.into())?;
    positive(&end, "sent")?;
    positive(&end, "dead")?;
    let count = |key: &str| end[key].as_u64().unwrap_or(0);
    is(&end, "sent", &(count("done") + count("dead")).into())
}

/// The commands of the README: their last one shows a queue whose one message is done.
///
/// # Errors
///
/// What did not hold.
pub fn readme(line: &str) -> Result<(), String> {
    let queue = object(line)?;
    is(&queue, "done", &1.into())?;
    is(&queue, "sent", &1.into())
}

fn object(line: &str) -> Result<Value, String> {
    match serde_json::from_str(line) {
        Ok(end @ Value::Object(_)) => Ok(end),
        _ => Err(format!("its last line is no JSON object: {line:?}")),
    }
}

fn is(end: &Value, key: &str, expected: &Value) -> Result<(), String> {
    let found = &end[key];
    if found == expected && !found.is_null() {
        return Ok(());
    }
    Err(format!("`{key}` is {found} and must be {expected}"))
}

fn positive(end: &Value, key: &str) -> Result<(), String> {
    let found = &end[key];
    if found.as_u64().is_some_and(|count| 0 < count) { Ok(()) } else { Err(format!("`{key}` is {found}")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `good` passes; with each of `wrong` in place of its own value it does not.
    #[track_caller]
    fn check(holds: fn(&str) -> Result<(), String>, good: &Value, wrong: &[(&str, Value)]) {
        assert_eq!(holds(&good.to_string()), Ok(()));
        for (key, value) in wrong {
            let mut end = good.clone();
            end[*key] = value.clone();
            let why = holds(&end.to_string()).unwrap_err();
            assert!(why.starts_with('`'), "{why}");
        }
        for line in ["", "ok", "[1]"] {
            assert!(holds(line).unwrap_err().contains("no JSON object"));
        }
    }

    #[test]
    fn a_crash_test_that_lost_something_or_did_nothing_fails() {
        let good = json!({ "lost": 0, "double_effects": 0, "order_violations": 0, "left_in_transaction": 0,
            "unfinished": false, "kills": 10,
            "sent": 5_000, "sabotage_caught": 2, "sabotage_total": 2 });
        let wrong = [
            ("lost", json!(1)),
            ("double_effects", json!(1)),
            ("order_violations", json!(1)),
            ("left_in_transaction", json!(1)),
            ("unfinished", json!(true)),
            ("unfinished", Value::Null),
            ("sabotage_caught", json!(1)),
            ("kills", json!(0)),
            ("sent", json!(0)),
        ];
        check(crash_test, &good, &wrong);
    }

    #[test]
    fn a_run_of_transactions_that_broke_its_promise_or_left_out_a_way_fails() {
        let ways = |killed: u64| json!({ "error": 1, "dropped": 1, "killed": killed, "deadlock": 1, "savepoint": 1, "serialisation": 1 });
        let good = json!({ "rolled_back_delivered": 0, "committed_missing": 0, "unkept": 0, "unfinished": false,
            "rolled_back": ways(1), "committed": 700, "delivered": 1_400, "kills": 8,
            "sabotage_caught": 4, "sabotage_total": 4 });
        let wrong = [
            ("rolled_back_delivered", json!(1)),
            ("committed_missing", json!(1)),
            ("unkept", json!(1)),
            ("unfinished", json!(true)),
            ("sabotage_caught", json!(3)),
            ("kills", json!(0)),
            ("committed", json!(0)),
            ("delivered", json!(0)),
            ("rolled_back", ways(0)),
            ("rolled_back", Value::Null),
        ];
        check(transactions, &good, &wrong);
    }

    #[test]
    fn a_demo_that_cannot_account_for_a_message_fails() {
        let good = json!({ "sent": 2_000, "done": 1_990, "dead": 10, "lost": 0 });
        let wrong = [("lost", json!(1)), ("done", json!(1_989)), ("dead", json!(0)), ("sent", json!(0))];
        check(demo, &good, &wrong);
    }

    #[test]
    fn a_readme_whose_message_is_not_worked_fails() {
        check(readme, &json!({ "done": 1, "sent": 1 }), &[("done", json!(0)), ("sent", json!(2))]);
    }
}
