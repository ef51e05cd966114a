//! The states of a transactional id, and which may follow which.

/// The state of a transactional id, as it is stored.
///
/// ```text
///            add partitions                 end                      markers written
///   Empty -----------------> Ongoing -----------------> PrepareCommit ------------> CompleteCommit
///     ^                       ^   |  end, fence, timeout                                |
///     |                       |   +-------------------> PrepareAbort -------------> CompleteAbort
///     | InitProducerId        |        ^ abort without partitions (TV2)                 |
///     +-----------------------+--------+--------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum TransactionState {
    /// The id has a producer, which has no transaction.
    Empty,
    /// The transaction has partitions.
    Ongoing,
    /// The transaction will be committed: markers are being written.
    PrepareCommit,
    /// The transaction will be aborted: markers are being written.
    PrepareAbort,
    /// The last transaction was committed.
    CompleteCommit,
    /// The last transaction was aborted.
    CompleteAbort,
}

/// The names of Kafka's states that are never stored: an id that is being removed, and a producer that is being fenced.
/// Here both are a pending change of another state.
const NEVER_STORED: [&str; 2] = ["Dead", "PrepareEpochFence"];

impl TransactionState {
    const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];

    /// The number in a record.
    pub(crate) const fn code(self) -> i8 {
        match self {
            Self::Empty => 0,
            Self::Ongoing => 1,
            Self::PrepareCommit => 2,
            Self::PrepareAbort => 3,
            Self::CompleteCommit => 4,
            Self::CompleteAbort => 5,
        }
    }

    /// The state with this number in a record.
    pub(crate) fn of_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Kafka's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    /// The number of states.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// The place among [`Self::COUNT`] states.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The state with this name, in upper or lower case.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(name))
    }

    /// Returns `true` if Kafka has a state of this name.
    pub(crate) fn is_name(name: &str) -> bool {
        NEVER_STORED.contains(&name) || Self::ALL.into_iter().any(|state| state.name() == name)
    }

    /// Returns `true` if markers are being written.
    pub(crate) const fn is_prepared(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }

    /// Returns `true` if a change from `previous` to this state is legal.
    pub(crate) const fn may_follow(self, previous: Self) -> bool {
        match self {
            Self::Empty => {
                matches!(previous, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
            }
            Self::Ongoing => {
                matches!(previous, Self::Ongoing | Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
            }
            Self::PrepareCommit => matches!(previous, Self::Ongoing),
            // All but the first are aborts without partitions, which TV2 allows.
            Self::PrepareAbort => {
                matches!(previous, Self::Ongoing | Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
            }
            Self::CompleteCommit => matches!(previous, Self::PrepareCommit),
            Self::CompleteAbort => matches!(previous, Self::PrepareAbort),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_transaction_can_only_complete_as_it_was_prepared() {
        for state in TransactionState::ALL {
            let after_commit = state.may_follow(TransactionState::PrepareCommit);
            let after_abort = state.may_follow(TransactionState::PrepareAbort);
            assert_eq!(after_commit, state == TransactionState::CompleteCommit, "{state:?}");
            assert_eq!(after_abort, state == TransactionState::CompleteAbort, "{state:?}");
        }
    }

    #[test]
    fn states_have_kafkas_numbers_and_names() {
        for (code, state) in TransactionState::ALL.into_iter().enumerate() {
            assert_eq!(TransactionState::of_code(code as i8), Some(state));
            assert!(TransactionState::is_name(state.name()));
        }
        // 6 and 7 are Kafka's `Dead` and `PrepareEpochFence`.
        assert_eq!(TransactionState::of_code(6), None);
        assert!(TransactionState::is_name("Dead") && !TransactionState::is_name("dead"));
    }
}
