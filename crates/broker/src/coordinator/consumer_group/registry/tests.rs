//! The patterns that a heartbeat matches.

use super::*;

/// Each heartbeat of a group matched all its patterns after a change of the topics, at the same time as the others.
#[test]
fn one_heartbeat_at_a_time_matches_the_patterns_of_a_group() {
    let memory = KeptMemory::new(1 << 20);
    let groups = ConsumerGroups::new(memory.clone());
    let kept = memory.keep(ConsumerGroup::bytes("billing")).expect("there is room");
    let mut group = ConsumerGroup::new(memory, kept);
    for pattern in ["a.*", "b.*"] {
        group.patterns.insert(pattern.to_owned(), ResolvedPattern::default());
    }
    groups.lock("billing").by_id.insert("billing".to_owned(), Entry::new(group));
    let versions = PatternVersions { topics: 1, acls: 0 };
    let unresolved = |pattern, now_ms| groups.unresolved("billing", pattern, versions, now_ms);
    assert_eq!(unresolved(Some("a.*"), 1_000), ["a.*", "b.*"]);
    assert!(unresolved(Some("b.*"), 1_001).is_empty());
    assert_eq!(unresolved(Some("c.*"), 1_001), ["c.*"], "a new pattern is matched at once");
    // The client of the first heartbeat has gone.
    assert_eq!(unresolved(None, 31_000), ["a.*", "b.*"]);
}
