//! The words that the rules reject. This file is the only one that may contain them all.

/// Words that follow each other, in lower case.
pub(super) struct Filler {
    pub(super) words: &'static [&'static str],
    /// A word that makes the phrase plain English if it is among the next [`NEAR`] words.
    unless: Option<&'static str>,
    pub(super) instead: &'static str,
}

/// How far behind a filler the excusing word may be.
const NEAR: usize = 4;

const fn filler(words: &'static [&'static str], instead: &'static str) -> Filler {
    Filler { words, unless: None, instead }
}

const fn filler_unless(
    words: &'static [&'static str],
    unless: &'static str,
    instead: &'static str,
) -> Filler {
    Filler { words, unless: Some(unless), instead }
}

pub(super) const FILLERS: &[Filler] = &[
    filler_unless(&["tells"], "apart", "name the verb: notifies, reports, documents"),
    filler_unless(&["told"], "apart", "name the verb: notified, configured, requested"),
    filler(&["nobody"], "name who: no task, no caller, no client"),
    filler(&["somebody"], "name who: a task, a caller, a client"),
    filler(&["whoever"], "name who: the caller, the task that"),
    filler(&["anew"], "again, from the start"),
    filler(&["lies"], "is, is stored, is below"),
    filler_unless(&["stands"], "for", "is, is written, is documented"),
    filler(&["hand", "out"], "return, assign"),
    filler(&["hands", "out"], "returns, assigns"),
    filler(&["handed", "out"], "returned, assigned"),
    filler(&["handing", "out"], "returning, assigning"),
    filler(&["goes", "on"], "continues"),
    filler(&["went", "on"], "continued"),
    filler(&["as", "of"], "since, from"),
    filler(&["says", "so"], "name the verb: warns, reports, returns an error"),
    filler(&["say", "so"], "name the verb: warn, report, return an error"),
    filler(&["all", "the", "same"], "still, as well"),
    filler(&["speaks", "of"], "describes, names"),
    filler(&["in", "vain"], "without a result"),
    filler(&["whose", "is"], "name the owner"),
    filler(&["comes", "of"], "name the result"),
    filler(&["came", "of"], "name the result"),
];

/// First words of a definition that has no noun.
pub(super) const HEADLESS: &[&str] = &["What", "Who", "Whose", "Whether", "Where", "How"];

impl Filler {
    /// The number of times that the phrase occurs in `words`, which are in lower case.
    pub(super) fn occurs(&self, words: &[String]) -> usize {
        let starts = words.windows(self.words.len()).enumerate();
        starts
            .filter(|(_, window)| window.iter().zip(self.words).all(|(word, own)| word == own))
            .filter(|(at, _)| {
                let after = words[at + self.words.len()..].iter().take(NEAR);
                self.unless.is_none_or(|unless| !after.clone().any(|word| word == unless))
            })
            .count()
    }
}
