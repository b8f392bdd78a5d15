//! `millpond.toml`, read so that every value keeps its line.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{KEYS, Shape};
use super::{Origin, Value, unknown};
use crate::exit::{Exit, Failure};

/// The values of a file; what is wrong with its keys is added to `wrong`.
pub(super) fn read(path: &Path, wrong: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let tried = format!("cannot read {}", path.display());
        Failure::new(Exit::Usage, "invalid-config", tried).why(error.to_string())
    })?;
    let table = match DeTable::parse(&text) {
        Ok(table) => table,
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(&text, span.start));
            wrong.push(format!("{}:{line}: {}", path.display(), error.message()));
            return Ok(Vec::new());
        }
    };
    let mut reader = Reader { path, text: &text, values: Vec::new(), wrong };
    reader.walk("", table.get_ref());
    Ok(reader.values)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    values: Vec<(&'static str, Value)>,
    wrong: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn walk(&mut self, above: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = if above.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{above}.{}", name.get_ref())
            };
            let line = line_of(self.text, name.span().start);
            let is_level = KEYS.iter().any(|key| key.name.starts_with(&format!("{path}.")));
            match (value.get_ref(), KEYS.iter().find(|key| key.name == path)) {
                (DeValue::Table(inner), None) if is_level => self.walk(&path, inner),
                (_, None) => {
                    let why = unknown(&path).unwrap_or_default();
                    self.wrong.push(format!("{}:{line}: {why}", self.path.display()));
                }
                (_, Some(key)) => match of_shape(value, key.shape) {
                    Ok(text) => {
                        let origin = Origin::File(self.path.to_owned(), line);
                        self.values.push((key.name, Value { text, origin }));
                    }
                    Err(why) => self.wrong.push(format!("{}:{line}: {path}: {why}", self.path.display())),
                },
            }
        }
    }
}

fn of_shape(value: &Spanned<DeValue<'_>>, shape: Shape) -> Result<String, String> {
    match (shape, value.get_ref()) {
        (Shape::Texts, DeValue::Array(items)) => {
            let texts = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) if !text.contains(['\n', '\r']) => Ok(text.as_ref()),
                _ => Err("it is a list of texts of one line each".to_owned()),
            });
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        (Shape::Texts, _) => Err("it is a list of texts of one line each".to_owned()),
        _ => scalar(value).map_err(|kind| format!("it is a text, not a {kind}")),
    }
}

/// A value as a text: numbers are texts of digits, so that one check serves file and environment.
fn scalar(value: &Spanned<DeValue<'_>>) -> Result<String, &'static str> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Array(_) => Err("list"),
        DeValue::Table(_) => Err("table"),
        DeValue::Boolean(_) => Err("boolean"),
        DeValue::Float(_) => Err("fraction"),
        DeValue::Datetime(_) => Err("date"),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}
