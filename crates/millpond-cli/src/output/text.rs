//! Texts that somebody else wrote, as they may be printed: none can move the cursor, change colours, reorder what stands
//! beside it, or be run by a spreadsheet.

/// A text that cannot move the cursor, change colours or reorder what stands beside it.
pub(crate) fn clean(text: &str) -> String {
    clean_but_for(text, |_| false)
}

fn clean_but_for(text: &str, stays: fn(char) -> bool) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        match !stays(character) && (character.is_control() || turns(character)) {
            true => cleaned.extend(character.escape_default()),
            false => cleaned.push(character),
        }
    }
    cleaned
}

/// Characters that change the order in which others are shown, or begin a line.
fn turns(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// JSON whose texts cannot move a cursor either: what they hold stays the same, as escapes. Outside of texts JSON has
/// none of these characters.
pub(super) fn harmless(json: String) -> String {
    let harms = |character: char| ('\u{7f}'..='\u{9f}').contains(&character) || turns(character);
    if !json.contains(harms) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match harms(character) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text
}

/// RFC 4180. What a spreadsheet would take for a formula stays text: it gets a quote in front. Line breaks and tabs stay;
/// what else would move a cursor is escaped.
pub(super) fn csv_line(text: &mut String, cells: impl Iterator<Item = String>) {
    for (index, cell) in cells.enumerate() {
        if 0 < index {
            text.push(',');
        }
        let cell = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{cell}") } else { cell };
        let cell = clean_but_for(&cell, |character| matches!(character, '\n' | '\t'));
        if cell.contains([',', '"', '\n', '\r']) {
            text.push_str(&format!("\"{}\"", cell.replace('"', "\"\"")));
        } else {
            text.push_str(&cell);
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n\u{7f}"), "a\\u{1b}[2Jb\\r\\n\\u{7f}");
        assert_eq!(clean("Grüße 数据 😀"), "Grüße 数据 😀");
        assert_eq!(clean("x\u{202e}y"), "x\\u{202e}y");
    }

    #[test]
    fn json_keeps_its_meaning_and_cannot_move_a_cursor() {
        let text = "a\u{1b}\u{9b}2J\u{202e}é";
        let json = harmless(serde_json::to_string(text).unwrap());
        assert_eq!(json, "\"a\\u001b\\u009b2J\\u202eé\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut text = String::new();
        csv_line(&mut text, ["a", "b,c", "d\"e", "=1+1", "f\ng"].map(str::to_owned).into_iter());
        assert_eq!(text, "a,\"b,c\",\"d\"\"e\",'=1+1,\"f\ng\"\n");
    }
}
