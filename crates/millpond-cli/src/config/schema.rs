//! The keys of `millpond.toml` as a JSON Schema, for editors.

use serde_json::{Map, Value, json};

use super::key::{KEYS, Key, Shape};

/// What `parse_duration` reads: numbers with a unit, the longest unit first.
const DURATION: &str = "^(?=.)(\\d+d)?(\\d+h)?(\\d+m)?(\\d+s)?(\\d+ms)?$";

/// The schema.
pub(super) fn document() -> Value {
    let mut root = table();
    for key in KEYS {
        let (mut level, mut path) = (&mut root, key.name.split('.').peekable());
        while let Some(name) = path.next() {
            let inner = if path.peek().is_some() { table() } else { value(key) };
            level = level["properties"]
                .as_object_mut()
                .expect("a level has properties")
                .entry(name)
                .or_insert(inner);
        }
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "millpond.toml".into();
    root
}

fn table() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

fn value(key: &Key) -> Value {
    let mut schema = match key.shape {
        Shape::Text => json!({ "type": "string", "minLength": 1 }),
        Shape::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Shape::Duration => json!({ "type": "string", "pattern": DURATION }),
        Shape::Texts => json!({ "type": "array", "items": { "type": "string" } }),
    };
    let more: &mut Map<String, Value> = schema.as_object_mut().expect("it is made as one");
    more.insert("description".into(), key.about.into());
    match (key.shape, key.default) {
        (_, "") => {}
        (Shape::Number(..), text) => {
            more.insert("default".into(), text.parse::<u64>().unwrap_or_default().into());
        }
        (Shape::Texts, texts) => {
            more.insert("default".into(), texts.lines().collect());
        }
        (_, text) => {
            more.insert("default".into(), text.into());
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_schema_at_its_place() {
        let schema = document();
        for key in KEYS {
            let path = format!("/properties/{}", key.name.replace('.', "/properties/"));
            let found = schema.pointer(&path);
            assert_eq!(found.map(|found| found["description"] == key.about), Some(true), "{path}");
        }
        assert_eq!(schema.pointer("/properties/worker/additionalProperties"), Some(&Value::Bool(false)));
        assert_eq!(schema.pointer("/properties/worker/properties/concurrency/default"), Some(&10.into()));
    }
}
