//! `cargo xtask soak`: tests that CI runs in a fast version, here with counts that take long.
//!
//! A soak is an ordinary test that reads its count from one environment variable; its default is CI's.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use ottla_interop::target_dir;

use crate::shell::{self, cargo};

struct Soak {
    name: &'static str,
    what: &'static str,
    package: &'static str,
    program: &'static str,
    /// Parts of the names of its tests, with spaces between them.
    filter: &'static str,
    variable: &'static str,
    count: u32,
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "kill9",
        what: "SIGKILLs of a broker under load: nothing acknowledged is lost, nothing doubled, order kept",
        package: "ottla-interop",
        program: "all",
        filter: "kill9::",
        variable: "OTTLA_SOAK_KILLS",
        count: 200,
    },
    Soak {
        name: "broker-kill9",
        what: "the same with nothing but ottla's own commands, small segments, and a repair run that finds no damage",
        package: "ottla",
        program: "kill9",
        filter: "",
        variable: "OTTLA_SOAK_KILLS",
        count: 200,
    },
    Soak {
        name: "admin-methods",
        what: "1 = every method of Java's Admin on Apache Kafka 4.3, too: the outcomes are those that the broker is compared with",
        package: "ottla-interop",
        program: "all",
        filter: "admin_methods::",
        variable: "OTTLA_SOAK_ADMIN_METHODS",
        count: 1,
    },
    Soak {
        name: "compaction",
        what: "random histories of appends, transactions, crashes and compactions, each compared with a naive model",
        package: "ottla-log",
        program: "all",
        filter: "compaction_model::",
        variable: "OTTLA_COMPACTION_SEEDS",
        count: 30_000,
    },
    Soak {
        name: "flips",
        what: "1 = a bit flipped in every byte of a data directory, one at a time: refused, exact, or reported",
        package: "ottla-broker",
        program: "all",
        filter: "flips::",
        variable: "OTTLA_FLIP_STRIDE",
        count: 1,
    },
    Soak {
        name: "seeds",
        what: "minutes of seeds of the simulation, after those of earlier slices: no anomaly; target/sim-seeds.txt has totals",
        package: "ottla-sim",
        program: "seeds",
        filter: "",
        variable: "OTTLA_SIM_MINUTES",
        count: 9,
    },
    Soak {
        name: "errors",
        what: "1 = every API with every error, once and for seconds: requests within the back-off, and the clients recover",
        package: "ottla-sim",
        program: "errors",
        filter: "",
        variable: "OTTLA_SIM_STRIDE",
        count: 1,
    },
    Soak {
        name: "cuts",
        what: "1 = a connection cut after every byte, in both directions and in three ways: nothing lost or doubled",
        package: "ottla-sim",
        program: "cuts",
        filter: "",
        variable: "OTTLA_CUT_STRIDE",
        count: 1,
    },
    Soak {
        name: "kafka-cuts",
        what: "step between the bytes after which a transaction over TLS and SCRAM to Apache Kafka is cut: it commits once",
        package: "ottla-interop",
        program: "all",
        filter: "cuts::",
        variable: "OTTLA_CUT_STRIDE",
        count: 17,
    },
    Soak {
        name: "hostile",
        what: "seconds of each attack of hostile clients on a broker: its memory, and the latency of an honest client",
        package: "ottla",
        program: "hostile",
        filter: "",
        variable: "OTTLA_HOSTILE_SECONDS",
        count: 20,
    },
    Soak {
        name: "groups",
        what: "members of a group in each protocol, 6 s for each, that leave, die and stall while brokers go and come",
        package: "ottla-interop",
        program: "all",
        filter: "group_load::",
        variable: "OTTLA_SOAK_GROUP_MEMBERS",
        count: 20,
    },
    Soak {
        name: "processor-kill9",
        what: "SIGKILLs of processors in each mode and order: every record handled, in order, committed ones once",
        package: "ottla-parallel",
        program: "kill9",
        filter: "",
        variable: "OTTLA_SOAK_PROCESSOR_KILLS",
        count: 400,
    },
    Soak {
        name: "exactly-once-kill9",
        what: "the same in transactions, against Apache Kafka: every record handled exactly once",
        package: "ottla-interop",
        program: "processor",
        filter: "",
        variable: "OTTLA_SOAK_PROCESSOR_KILLS",
        count: 400,
    },
    Soak {
        name: "transactions-kill9",
        what: "SIGKILLs of a broker under a program that moves records in transactions: each record exactly once, in order",
        package: "ottla-interop",
        program: "all",
        filter: "broker_transactions::",
        variable: "OTTLA_SOAK_KILLS",
        count: 100,
    },
    Soak {
        name: "secured",
        what: "1 = tools and clients of others with TLS, SASL, ACLs, quotas and share groups, at Kafka 4.3 and Ottla: the same",
        package: "ottla-interop",
        program: "all",
        filter: "secured::",
        variable: "OTTLA_SOAK_SECURED",
        count: 1,
    },
    Soak {
        name: "frameworks",
        what: "SIGKILLs of Spring and Flink programs with transactions and of the broker, at Kafka 4.3 and Ottla: exactly once",
        package: "ottla-interop",
        program: "all",
        filter: "frameworks::",
        variable: "OTTLA_SOAK_APPLICATIONS",
        count: 10,
    },
    Soak {
        name: "streams",
        what: "SIGKILLs of an exactly_once_v2 instance of Kafka Streams, and its other stories, at Kafka 4.3 and Ottla",
        package: "ottla-interop",
        program: "all",
        filter: "streams::",
        variable: "OTTLA_SOAK_APPLICATIONS",
        count: 10,
    },
    Soak {
        name: "connect",
        what: "SIGKILLs of a Connect worker with an exactly-once source, at Kafka 4.3 and Ottla: each line once, in order",
        package: "ottla-interop",
        program: "all",
        filter: "connect::",
        variable: "OTTLA_SOAK_APPLICATIONS",
        count: 10,
    },
    Soak {
        name: "mirror",
        what: "1 = MirrorMaker 2 between Kafka 4.3 and Ottla, in both directions: records, settings and offsets of groups",
        package: "ottla-interop",
        program: "all",
        filter: "mirror::",
        variable: "OTTLA_SOAK_APPLICATIONS",
        count: 1,
    },
    Soak {
        name: "foreign",
        what: "1 = other clients' transactions, a group on four clients, and static members in turn, at Kafka 4.3 and Ottla",
        package: "ottla-interop",
        program: "all",
        filter: "foreign:: shared_group:: verifiable::",
        variable: "OTTLA_SOAK_APPLICATIONS",
        count: 1,
    },
    Soak {
        name: "models",
        what: "times as many executions of the models of hand-written synchronisation: no lost wake-up, no use after free",
        package: "ottla-models",
        program: "models",
        filter: "",
        variable: "OTTLA_MODEL_FACTOR",
        count: 50,
    },
];

const BUILD_WITHIN: Duration = Duration::from_secs(30 * 60);
const SOAK_WITHIN: Duration = Duration::from_secs(4 * 60 * 60);

pub(crate) fn list() -> ExitCode {
    for soak in SOAKS {
        println!("cargo xtask soak {} {:6}  {}", soak.name, soak.count, soak.what);
    }
    println!(
        "cargo xtask soak fuzz 10  minutes of libFuzzer for each fuzz target, after those of earlier slices: no finding"
    );
    ExitCode::SUCCESS
}

/// Runs one soak against the release build, and prints how long it took: the figure to record.
pub(crate) fn run(name: &str, count: Option<u32>) -> ExitCode {
    let Some(soak) = SOAKS.iter().find(|soak| soak.name == name) else {
        eprintln!("no soak {name}; there is:");
        list();
        return ExitCode::from(2);
    };
    let count = count.unwrap_or(soak.count);
    let started = Instant::now();
    let outcome = shell::run(&mut cargo(&["build", "--release", "--package", "ottla"]), BUILD_WITHIN)
        .and_then(|build| if build.status.success() { Ok(()) } else { Err("no release build".to_owned()) })
        .and_then(|()| {
            let mut test = cargo(&["test", "--release", "--package", soak.package, "--test", soak.program]);
            if soak.package == "ottla-interop" {
                test.args(["--features", "soaks"]);
            }
            test.args(["--", "--nocapture"]).args(soak.filter.split_whitespace());
            test.env(soak.variable, count.to_string()).env("OTTLA_BIN", target_dir().join("release/ottla"));
            // A soak in slices continues where the last one ended.
            test.env("OTTLA_SIM_STATE", target_dir().join("sim-seeds.txt"));
            shell::run(&mut test, SOAK_WITHIN)
        });
    match outcome {
        Ok(done) if done.status.success() => {
            println!("soak {name}: {count} in {:.1} s", started.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Ok(done) => {
            println!("soak {name}: FAILED ({})", done.status);
            ExitCode::FAILURE
        }
        Err(why) => {
            println!("soak {name}: FAILED ({why})");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ottla_interop::workspace_root;

    use super::*;

    /// The soak of `foreign` left out the group whose members are on four clients.
    #[test]
    fn each_story_for_kafka_and_ottla_is_in_a_soak() {
        let tests = workspace_root().join("interop/tests");
        let mut checked = 0;
        for entry in
            fs::read_dir(tests).expect("the interop tests").map(|entry| entry.expect("a file").path())
        {
            let file = if entry.is_dir() { entry.join("mod.rs") } else { entry.clone() };
            let Ok(text) = fs::read_to_string(&file) else { continue };
            if !text.contains("on_application_brokers(") {
                continue;
            }
            let module = entry.file_stem().expect("a name").to_string_lossy();
            let filter = format!("{module}::");
            let is_run = |soak: &Soak| soak.filter.split(' ').any(|part| part == filter);
            assert!(SOAKS.iter().any(is_run), "no soak runs {filter}");
            checked += 1;
        }
        assert!(checked >= 3, "{checked} modules");
    }
}
