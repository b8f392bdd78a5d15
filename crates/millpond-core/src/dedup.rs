//! What a queue's dedup function left of a list. Pure.

use thiserror::Error;

/// A dedup function answered something that was not in its input: it may drop, never add or change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("it answered a body that was not in its input, at index {0}")]
pub struct NotInInput(pub usize);

/// Which of `inputs` a function kept that answered `outputs`, both in their encoded form. Of equal inputs the first
/// ones are kept.
///
/// # Errors
///
/// It added or changed one.
pub fn kept<B: AsRef<[u8]>>(inputs: &[B], outputs: &[B]) -> Result<Vec<bool>, NotInInput> {
    let mut open: std::collections::HashMap<&[u8], std::collections::VecDeque<usize>> =
        std::collections::HashMap::new();
    for (place, input) in inputs.iter().enumerate() {
        open.entry(input.as_ref()).or_default().push_back(place);
    }
    let mut kept = vec![false; inputs.len()];
    for (index, output) in outputs.iter().enumerate() {
        let place = open.get_mut(output.as_ref()).and_then(std::collections::VecDeque::pop_front);
        kept[place.ok_or(NotInInput(index))?] = true;
    }
    Ok(kept)
}

/// For each input that was dropped, the place of the one that stands for it: an equal one that was kept, or else the
/// first that was kept. `None` for what was kept, and where nothing was.
pub fn stand_ins<B: AsRef<[u8]>>(inputs: &[B], kept: &[bool]) -> Vec<Option<usize>> {
    let mut first = std::collections::HashMap::new();
    for (place, input) in inputs.iter().enumerate().filter(|(place, _)| kept[*place]) {
        first.entry(input.as_ref()).or_insert(place);
    }
    let any = kept.iter().position(|kept| *kept);
    let stand_in = |(input, kept): (&B, &bool)| match kept {
        true => None,
        false => first.get(input.as_ref()).copied().or(any),
    };
    inputs.iter().zip(kept).map(stand_in).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(inputs: &[&str], outputs: &[&str], expected: Result<&[bool], NotInInput>) {
        assert_eq!(kept(inputs, outputs), expected.map(<[bool]>::to_vec));
    }

    #[test]
    fn a_function_may_drop() {
        check(&["a", "b", "a"], &["a", "b"], Ok(&[true, true, false]));
        check(&["a", "b", "a"], &["b", "a"], Ok(&[true, true, false]));
        check(&["a", "a"], &["a", "a"], Ok(&[true, true]));
        check(&["a", "b"], &["b"], Ok(&[false, true]));
        check(&["a"], &[], Ok(&[false]));
        check(&[], &[], Ok(&[]));
    }

    #[test]
    fn it_may_not_add_or_change() {
        check(&["a"], &["a", "a"], Err(NotInInput(1)));
        check(&["a", "b"], &["a", "c"], Err(NotInInput(1)));
    }

    #[test]
    fn an_equal_one_stands_for_what_was_dropped_or_else_the_first() {
        let inputs = ["x", "a", "a", "b"];
        assert_eq!(stand_ins(&inputs, &[true, true, false, false]), [None, None, Some(1), Some(0)]);
        assert_eq!(stand_ins(&inputs, &[false; 4]), [None; 4]);
    }
}
