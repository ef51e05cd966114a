//! The project's own commands, run as `cargo xtask COMMAND`.

#![allow(clippy::disallowed_methods, reason = "a shell around cargo: it measures real time")]

mod bench;
mod card;
mod compat;
mod dist;
mod fuzz;
mod install;
mod sanitize;
mod shell;
mod soak;
mod test;
mod test_programs;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--quick] [FILTER]   format, tidy, lints, documentation, licences, every test, the interop tests, the packages, the report card
      --quick               without documentation, packages, report card and the tests that need a JVM; at most 5 minutes
      FILTER                only tests whose name contains it, or the interop test file of that name
  tidy                      the house rules alone
      --words [CRATE]       lists the sentences that break the rules for words: of client, capi, docs, ...
      --counts              prints the numbers in the form of xtask/src/tidy/baseline.txt, for merges that move code
      --lower               lowers the numbers in xtask/src/tidy/baseline.txt to the counted ones
  compat                    generates COMPAT.md and docs/CONFIGURATION.md, BROKER.md, METRICS.md, STATISTICS.md and
                            statistics-schema.json from the tables in the code
  install --prefix DIR      librdkafka's libraries, headers and pkg-config files on Ottla (docs/ABI.md)
      --profile NAME        of cargo (default release)
  dist                      tarball, Debian packages, container image, bills of materials and checksums, each used once
      --output DIR          the directory of the results (default target/packages/results)
      --reuse               packs the files of the last build
      --unused              only builds and packs
      --twice               builds again from a copy of the sources, and compares all bytes
      --dev                 only packs and uses the binaries of the tests, as cargo xtask test does
  card [SUITE]              test suites of others on the original librdkafka and on ours, or on both brokers; writes docs/REPORT_CARD.md
      SUITE                 librdkafka (its numbered tests), librdkafka-2.12, rust-rdkafka, confluent-kafka-go, node-rdkafka;
                            librdkafka-consumer; on both brokers: librdkafka-brokers, kgo, sarama, kafka-go
      --quick               only what passed when the report was written, at most 6 minutes; fails on a regression
      --record              the results of the tests of --test go into the table and the report
      --report              only writes the report again, after a change of xtask/src/card/reasons.txt
      --test N,...          only these tests; writes no report
      --library DIR         the library to test instead of ours: a directory, or `original`; writes no report
      --jobs N              tests at the same time (default: processors + 1)
  sanitize [TOOL]           memory checkers: asan, valgrind, tsan; without a name: all (docs/RELIABILITY.md)
  soak [NAME [COUNT]]       the long variants, one by one; without a name: what there is
  soak fuzz [MINUTES]       every fuzz target with libFuzzer for that long (default 10), in slices; the next call continues
      --target NAME         only this target; can be given more than once
      --jobs N              programs at the same time (default: processors)
      --slice MINUTES       the time of this call (default 9)
  bench [OPTIONS]           our broker and client against Apache Kafka's and against the floor, as a table
      --count N             messages per pass (default 3000000)
      --repeat N            passes over everything, interleaved (default 3)
      --without-kafka       ours alone
      --json FILE           every sample as JSON
  bench compaction [OPTIONS]
                            the rate of our cleaner against Apache Kafka's: --mib N, --repeat N
  bench groups [OPTIONS]    a large group next to Apache Kafka 4.3, and many groups on our broker
      --members N           of the large group, and partitions (default 1000)
      --groups N            (default 100000)
      --requests N          per pass (default 20000)
      --repeat N            passes (default 3)
      --without-kafka       ours alone
  bench pairs OTHER [OPTIONS]
                            the CPU of this build next to that of another `ottla`: --count N, --pairs N (default 60), --cpu N (default 0)
  compare [OPTIONS]         our client next to librdkafka and franz-go, as tables (bench/compare/README.md)
      --quick               fewer messages and passes: a look, no result
      --only PART,...       only what has a PART in its name: kafka-2, ottla-1/test1, /100, latency, pingpong, ...
      --repeat N            passes over everything, interleaved (default 3, and 10 for latencies)
      --json FILE           every sample as JSON
  lab nagle [OPTIONS]       produces and flushes over TLS and a delayed link, Nagle's algorithm on and off, beside librdkafka
      --messages N          round trips of each client (default 200)
      --repeat N            passes over everything, interleaved (default 3)
      --svg FILE            the plot (default target/lab/nagle.svg)
  peer NAME                 builds the program around another library (sarama) and prints its path, for
                            `ottla bench patterns --against NAME`
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["test", rest @ ..] => match test::Options::parse(rest) {
            Ok(options) => test::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["tidy"] => tidy::run(tidy::Action::Check),
        ["tidy", "--counts"] => tidy::run(tidy::Action::Counts),
        ["tidy", "--lower"] => tidy::run(tidy::Action::Lower),
        ["tidy", "--words"] => tidy::run(tidy::Action::Words(None)),
        ["tidy", "--words", room] => tidy::run(tidy::Action::Words(Some(room))),
        ["compat"] => compat::run(),
        ["install", rest @ ..] => match install::Options::parse(rest) {
            Ok(options) => install::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["dist", rest @ ..] => match dist::Options::parse(rest) {
            Ok(options) => dist::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["card", rest @ ..] => match card::Options::parse(rest) {
            Ok(options) => card::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["sanitize"] => sanitize::run(None),
        ["sanitize", name] => match sanitize::Tool::parse(name) {
            Some(tool) => sanitize::run(Some(tool)),
            None => usage_error(&format!("sanitize: no tool {name}")),
        },
        ["soak"] => soak::list(),
        ["soak", "fuzz", rest @ ..] => match fuzz::Options::parse(rest) {
            Ok(options) => fuzz::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["soak", name] => soak::run(name, None),
        ["soak", name, count] => match count.parse() {
            Ok(count) => soak::run(name, Some(count)),
            Err(_) => usage_error(&format!("{count} is not a count")),
        },
        ["bench", "compaction", rest @ ..] => match bench::compaction::Options::parse(rest) {
            Ok(options) => bench::compaction::run_all(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["bench", "groups", rest @ ..] => match bench::groups::Options::parse(rest) {
            Ok(options) => bench::groups::run_all(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["bench", "pairs", rest @ ..] => match bench::pairs::Options::parse(rest) {
            Ok(options) => bench::pairs::run_all(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["bench", rest @ ..] => match bench::Options::parse(rest) {
            Ok(options) => bench::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["compare", rest @ ..] => match bench::compare::Options::parse(rest) {
            Ok(options) => bench::compare::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["lab", "nagle", rest @ ..] => match bench::lab::Options::parse(rest) {
            Ok(options) => bench::lab::run(&options),
            Err(wrong) => usage_error(&wrong),
        },
        ["peer", name] => bench::compare::build_peer(name),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => usage_error("no command"),
        [other, ..] => usage_error(&format!("no command {other} with these arguments")),
    }
}

fn usage_error(wrong: &str) -> ExitCode {
    eprintln!("cargo xtask: {wrong}\n\n{USAGE}");
    ExitCode::from(2)
}
