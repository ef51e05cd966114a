//! `--output table|json`: listings as a table for people, or as JSON for programs.
//!
//! JSON has one object per line. docs/COMMANDS.md documents the keys, and a test compares them.

use clap::{Args, ValueEnum};
use ottla_client::Admin;
use serde_json::{Map, Value};

use crate::connect::{ConnectArgs, admin};
use crate::failure::Failure;
use crate::json_log::json_line;
use crate::output::print;
use crate::table::Table;

/// The form of a listing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// A table.
    #[default]
    Table,
    /// One JSON object per line.
    Json,
}

/// The option of commands that print a listing.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputArgs {
    /// Prints a table, or JSON with one object per line
    #[arg(long, value_enum, value_name = "table|json", default_value = "table", hide_possible_values = true)]
    pub(crate) output: Format,
}

/// The options of commands that print a listing of a cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListingArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl ListingArgs {
    pub(crate) fn format(&self) -> Format {
        self.output.output
    }

    /// An admin client of the cluster, which has answered.
    pub(crate) async fn admin(&self) -> Result<Admin, Failure> {
        admin(&self.connect).await
    }
}

/// Rows with named columns. A value that is not known is null.
#[derive(Debug)]
pub(crate) struct Listing<const N: usize> {
    /// The keys of the objects; in upper case, the headers of the table.
    columns: [&'static str; N],
    rows: Vec<[Value; N]>,
}

impl<const N: usize> Listing<N> {
    pub(crate) fn new(columns: [&'static str; N]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: [Value; N]) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn print(&self, format: Format) -> Result<(), Failure> {
        print(&self.render(format))
    }

    /// The text of the listing.
    pub(crate) fn render(&self, format: Format) -> String {
        match format {
            Format::Table => {
                let headers = self.columns.map(|key| key.replace('_', "-").to_uppercase());
                let mut table = Table::new(headers.each_ref().map(String::as_str));
                self.rows.iter().for_each(|row| table.row(row.each_ref().map(cell)));
                table.render()
            }
            Format::Json => self.rows.iter().map(|row| json_line(&self.object(row)) + "\n").collect(),
        }
    }

    /// The rows as objects.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.rows.iter().map(|row| self.object(row)).collect()
    }

    fn object(&self, row: &[Value; N]) -> Value {
        let entries = self.columns.iter().zip(row).map(|(key, value)| ((*key).to_owned(), value.clone()));
        Value::Object(entries.collect::<Map<String, Value>>())
    }
}

/// The text of a value in a table.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "-".into(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_values_are_dashes_in_a_table_and_null_in_json() {
        let mut listing = Listing::new(["topic", "log_end", "isr"]);
        listing.row([json!("orders"), json!(7), json!([1, 2])]);
        listing.row([json!(""), Value::Null, json!([])]);
        let table = "TOPIC   LOG-END  ISR\norders        7  1,2\n-             -  -\n";
        assert_eq!(listing.render(Format::Table), table);
        let json = "{\"isr\":[1,2],\"log_end\":7,\"topic\":\"orders\"}\n{\"isr\":[],\"log_end\":null,\"topic\":\"\"}\n";
        assert_eq!(listing.render(Format::Json), json);
        let mut listing = Listing::new(["group"]);
        listing.row([json!("\u{9b}2J")]);
        assert_eq!(listing.render(Format::Json), "{\"group\":\"\\u009b2J\"}\n");
    }
}
