//! The exceptions, each with its reason. One that is no longer needed is a finding too.

/// Files longer than [`LINES_MAX`](super::sources::LINES_MAX).
pub(super) const LONG_FILES: &[(&str, &str)] = &[
    (
        "crates/capi/include/rdkafka.h",
        "programs include the whole interface by this one name; its sections are by noun",
    ),
    ("crates/capi/include/rdkafkacpp.h", "the same for C++"),
];

/// Files that contain `unsafe`; a path that ends in `/` stands for all files under it.
pub(super) const UNSAFE_FILES: &[(&str, &str)] = &[
    ("crates/capi/", "C's pointers come and go here, and nowhere else"),
    ("crates/client/tests/allocations.rs", "an allocator that counts: the trait's functions are unsafe"),
    ("crates/client/tests/memory.rs", "an allocator that counts: the trait's functions are unsafe"),
    (
        "crates/client/src/security/gssapi/library.rs",
        "loads the system's library of Kerberos at run time and calls its functions",
    ),
    ("fuzz/src/memory.rs", "an allocator that counts: the trait's functions are unsafe"),
    ("interop/tests/c_admin.rs", "calls the C interface as C does"),
    ("crates/cli/src/allocator.rs", "sets the number of the allocator's heaps, which only the C library can"),
    (
        "crates/cli/src/commands/broker/ready_fd.rs",
        "takes a file descriptor that the parent process has opened: only its number is known",
    ),
    (
        "crates/broker/src/cluster/background_priority.rs",
        "sets the time slice of a thread by a system call that no library wraps",
    ),
    ("crates/wire/src/prefetch.rs", "asks for cache lines ahead of a record: a hint, which accesses nothing"),
];

/// Functions of `crates/capi/src` that C calls without the panic boundary: path, name, reason.
pub(super) const WITHOUT_BOUNDARY: &[(&str, &str, &str)] = &[(
    "crates/capi/src/ffi/exported_from_c.rs",
    "$exported",
    "naked: one jump to a function of C, no Rust runs in it",
)];

/// Functions longer than 80 lines that are tables: path, name, reason.
pub(super) const LONG_FUNCTIONS: &[(&str, &str, &str)] =
    &[("crates/client/src/config/mod.rs", "default", "a table: one line per property")];
