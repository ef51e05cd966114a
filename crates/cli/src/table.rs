//! Tables of text.

/// Rows under a header. Each column is as wide as its widest cell.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// The text, one line per row. Columns of numbers are right-aligned.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: usize, column: usize| self.rows[row].get(column).map_or("", String::as_str);
        let width =
            |column| (0..self.rows.len()).map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
        let is_number = |text: &str| {
            text == "-"
                || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'-'))
        };
        let right: Vec<bool> =
            (0..columns).map(|column| (1..self.rows.len()).all(|row| is_number(cell(row, column)))).collect();
        let mut text = String::new();
        for row in 0..self.rows.len() {
            let mut line = String::new();
            for (column, right) in right.iter().enumerate() {
                let (cell, width) = (cell(row, column), width(column));
                let padded = if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
                line.push_str(&padded);
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned_and_words_left_aligned() {
        let mut table = Table::new(["TOPIC", "LAG"]);
        table.row(["orders".into(), "7".into()]);
        table.row(["a".into(), "1234".into()]);
        assert_eq!(table.render(), "TOPIC    LAG\norders     7\na       1234\n");
    }
}
