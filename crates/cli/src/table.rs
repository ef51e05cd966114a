//! Tables of text.

use std::iter::repeat_n;

use crate::printable::printable;

/// The width of the widest column, in characters. A longer cell is printed whole, and moves the rest of its row.
const WIDTH_MAX: usize = 1000;

/// Rows under a header. Each column is as wide as its widest cell. Control characters are escaped.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| printable(cell).into_owned()).collect());
    }

    /// The text, one line per row. Columns of numbers are right-aligned.
    pub(crate) fn render(&self) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut columns = vec![Column { width: 0, is_right: true }; count];
        for (number, row) in self.rows.iter().enumerate() {
            let cells = row.iter().map(String::as_str).chain(repeat_n("", count - row.len()));
            for (column, cell) in columns.iter_mut().zip(cells) {
                column.width = column.width.max(width(cell).min(WIDTH_MAX));
                column.is_right &= number == 0 || is_number(cell);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in columns.iter().zip(row) {
                let padding = repeat_n(' ', column.width.saturating_sub(width(cell)));
                if column.is_right {
                    line.extend(padding);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.extend(padding);
                }
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The form of a column.
#[derive(Clone, Copy, Debug)]
struct Column {
    width: usize,
    is_right: bool,
}

/// The number of characters.
fn width(cell: &str) -> usize {
    #[cfg(test)]
    tests::MEASURED.with(|measured| measured.set(measured.get() + 1));
    cell.chars().count()
}

fn is_number(text: &str) -> bool {
    text == "-" || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'-'))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The number of cells whose width was computed.
        pub(super) static MEASURED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn numbers_are_right_aligned_and_words_left_aligned() {
        let mut table = Table::new(["TOPIC", "LAG"]);
        table.row(["orders".into(), "7".into()]);
        table.row(["a".into(), "1234".into()]);
        assert_eq!(table.render(), "TOPIC    LAG\norders     7\na       1234\n");
    }

    /// Each cell computed the width of its column again: 40,000 rows took minutes.
    #[test]
    fn a_large_table_measures_each_cell_twice() {
        let mut table = Table::new(["TOPIC", "LAG"]);
        (0..40_000).for_each(|number| table.row([format!("topic-{number}"), number.to_string()]));
        MEASURED.set(0);
        let text = table.render();
        assert_eq!(MEASURED.get(), 2 * 2 * 40_001, "for its column, and for its padding");
        assert_eq!(text.lines().count(), 40_001);
        assert!(text.lines().skip(1).all(|line| line.len() == "topic-00000  00000".len()), "{text:.200}");
    }

    /// The width of the padding was a `u16`, and the command panicked.
    #[test]
    fn a_long_cell_is_printed_whole_and_other_rows_stay_short() {
        let mut table = Table::new(["CONFIG", "VALUE"]);
        table.row(["x".repeat(70_000), "1".into()]);
        table.row(["y".into(), "2".into()]);
        let lines: Vec<usize> = table.render().lines().map(str::len).collect();
        assert_eq!(lines, [WIDTH_MAX + 2 + 5, 70_000 + 2 + 5, WIDTH_MAX + 2 + 5]);
    }

    /// A cell with an escape sequence changed the terminal, and one with a newline looked like a row.
    #[test]
    fn control_characters_of_cells_are_escaped() {
        let mut table = Table::new(["CLIENT", "LAG"]);
        table.row(["a\u{1b}[2J\nb".into(), "1".into()]);
        assert_eq!(table.render(), "CLIENT       LAG\na\\x1b[2J\\nb    1\n");
    }
}
