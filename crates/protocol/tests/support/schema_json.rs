//! Compares Kafka's schemas from the client's jar with ours.

#![allow(clippy::needless_pass_by_value, reason = "the facts to compare are mostly made on the spot")]

use ottla_protocol::schema::{FieldSchema, FieldType, Schema, Versions};
use serde_json::Value;

/// Parses a schema: JSON with comments.
pub(crate) fn parse(text: &str) -> Value {
    let mut json = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_string = false;
        let mut end = line.len();
        for (at, letter) in line.char_indices() {
            match letter {
                '"' => in_string = !in_string,
                '/' if !in_string && line[at..].starts_with("//") => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        json.push_str(&line[..end]);
        json.push('\n');
    }
    serde_json::from_str(&json).expect("a schema is JSON")
}

/// All differences between `schema` and Kafka's `json`.
pub(crate) fn differences(schema: &Schema, json: &Value) -> Vec<String> {
    let mut found = Differences(Vec::new());
    let name = json["name"].as_str().expect("a text");
    found.compare(name, "name", schema.name, name);
    found.compare(name, "versions", schema.versions, versions(&json["validVersions"]));
    let flexible = versions(&json["flexibleVersions"]);
    let flexible_from = if flexible.is_empty() { i16::MAX } else { flexible.min };
    found.compare(name, "flexible", schema.flexible_from, flexible_from);
    found.fields(name, schema.fields, &json["fields"], &json["commonStructs"], schema.versions);
    found.0
}

struct Differences(Vec<String>);

impl Differences {
    fn compare(&mut self, path: &str, fact: &str, ours: impl ToString, kafkas: impl ToString) {
        let (ours, kafkas) = (ours.to_string(), kafkas.to_string());
        if ours != kafkas {
            self.0.push(format!("{path}: {fact} is `{ours}` here and `{kafkas}` in Kafka"));
        }
    }

    /// Compares the fields of a struct that exists in `around` versions. Versions outside of them are ignored: `3+`
    /// equals `0+` in a message that begins with version 3.
    fn fields(&mut self, path: &str, ours: &[FieldSchema], kafkas: &Value, common: &Value, around: Versions) {
        let Some(kafkas) = kafkas.as_array() else { panic!("{path}: no fields") };
        // Kafka keeps the fields of versions that it no longer has.
        let kafkas: Vec<&Value> =
            kafkas.iter().filter(|json| !meet(versions(&json["versions"]), around).is_empty()).collect();
        let ours: Vec<&FieldSchema> =
            ours.iter().filter(|field| !meet(field.versions, around).is_empty()).collect();
        self.compare(path, "number of fields", ours.len(), kafkas.len());
        for (field, json) in ours.into_iter().zip(kafkas) {
            let name = json["name"].as_str().expect("a text");
            let path = format!("{path}.{name}");
            let mut camel = name.to_owned();
            camel[..1].make_ascii_lowercase();
            self.compare(&path, "name", field.wire_name(), camel);
            let ty = json["type"].as_str().expect("a text");
            self.compare(&path, "type", field.ty, ty);
            let present = meet(versions(&json["versions"]), around);
            self.compare(&path, "versions", meet(field.versions, around), present);
            let nullable = |versions| meet(versions, present);
            self.compare(
                &path,
                "nullable",
                nullable(field.nullable),
                nullable(versions(&json["nullableVersions"])),
            );
            self.compare(&path, "tag", format!("{:?}", field.tag), format!("{:?}", json["tag"].as_u64()));
            if field.tag.is_some() {
                let tagged = meet(versions(&json["taggedVersions"]), around);
                self.compare(&path, "tagged versions", meet(field.versions, around), tagged);
            }
            self.compare(
                &path,
                "default",
                default(ty, field.default),
                default(ty, text(&json["default"]).as_deref().unwrap_or_default()),
            );
            let ignorable = text(&json["ignorable"]).is_some_and(|ignorable| ignorable == "true");
            self.compare(&path, "ignorable", field.ignorable, ignorable);

            let mut inner = field.ty;
            while let FieldType::Array(element) = inner {
                inner = *element;
            }
            if let FieldType::Struct(structure) = inner {
                let mut fields = &json["fields"];
                if let Some(common) = common.as_array() {
                    let shared = common.iter().find(|shared| shared["name"] == structure.name);
                    fields = shared.map_or(fields, |shared| &shared["fields"]);
                }
                self.fields(&path, structure.fields, fields, common, present);
            }
        }
    }
}

fn meet(a: Versions, b: Versions) -> Versions {
    let met = Versions { min: a.min.max(b.min), max: a.max.min(b.max) };
    if met.is_empty() { Versions { min: 0, max: -1 } } else { met }
}

fn versions(json: &Value) -> Versions {
    let number = |text: &str| text.parse::<i16>().expect("a version");
    match json.as_str() {
        None | Some("none") => Versions { min: 0, max: -1 },
        Some(text) => match (text.strip_suffix('+'), text.split_once('-')) {
            (Some(min), _) => Versions { min: number(min), max: i16::MAX },
            (None, Some((min, max))) => Versions { min: number(min), max: number(max) },
            (None, None) => Versions { min: number(text), max: number(text) },
        },
    }
}

/// Kafka quotes some values and not others.
fn text(json: &Value) -> Option<String> {
    match json {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Normalises the spelling of defaults.
fn default(ty: &str, text: &str) -> String {
    let number = match text {
        "null" => return "null".into(),
        "i32::MAX" => i64::from(i32::MAX),
        "i32::MIN" => i64::from(i32::MIN),
        "i64::MAX" => i64::MAX,
        _ => match (ty, text) {
            ("bool", "") => return "false".into(),
            ("bool" | "string", text) => return text.into(),
            (_, "") => 0,
            (_, text) => match text.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16).expect("a hexadecimal default"),
                None => text.parse().unwrap_or_else(|_| panic!("default {text} of type {ty}")),
            },
        },
    };
    number.to_string()
}
