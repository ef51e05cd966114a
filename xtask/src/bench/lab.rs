//! `cargo xtask lab nagle`: what Nagle's algorithm costs a program that produces and flushes, over a link with a delay.
//!
//! The link joins two network namespaces (`bench/lab/link.c`). Apache Kafka runs in one, the producers in the other. A
//! request that a client writes in two pieces stalls there as it does between machines: Nagle's algorithm holds the
//! second piece until the first is acknowledged, and the broker's kernel delays that acknowledgement by 40 ms.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, Peer, jars, run as run_command, target_dir, workspace_root,
};

use super::compare::{librdkafka_program, our_binary};
use super::number;
use super::ottla::Report;
use super::table::{Samples, markdown};

const BUILD_WITHIN: Duration = Duration::from_secs(60);
const RUN_WITHIN: Duration = Duration::from_secs(5 * 60);

/// Delay of each packet, one way, and the largest packet. With packets of 1,500 bytes a message of this size fills one,
/// which Nagle's algorithm sends at once: the stall is gone.
const DELAY_US: &str = "400";
const MTU: &str = "9001";

/// The value of each message: with it a request has about 2,219 bytes, as in the article.
const VALUE_BYTES: usize = 2_140;

/// The exit code of `link` where namespaces are not allowed.
const NOT_ALLOWED: i32 = 77;

/// The option of the part that runs behind the link.
const INSIDE: &str = "--inside";

/// The plot, in pixels: where the bars begin, their largest width, and the height of a row.
const LEFT: f64 = 180.0;
const WIDTH: f64 = 480.0;
const ROW: f64 = 46.0;

pub(crate) struct Options {
    messages: u64,
    repeat: usize,
    svg: PathBuf,
    inside: bool,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let svg = target_dir().join("lab/nagle.svg");
        let mut options = Self { messages: 200, repeat: 3, svg, inside: false };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("{arg} needs a value"));
            match arg {
                "--messages" => options.messages = number(arg, value()?)?,
                "--repeat" => options.repeat = number(arg, value()?)?,
                "--svg" => options.svg = value()?.into(),
                INSIDE => options.inside = true,
                other => return Err(format!("lab nagle does not know {other}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let done = if options.inside { measure(options).map(|()| ExitCode::SUCCESS) } else { enter(options) };
    done.unwrap_or_else(|failure| {
        eprintln!("lab: {failure}");
        ExitCode::FAILURE
    })
}

/// Builds everything outside, where there is a network, and runs this program again behind the link.
fn enter(options: &Options) -> Result<ExitCode, Failure> {
    if let Err(missing) = Peer::Java.require() {
        println!("lab nagle: skipped: {missing}");
        return Ok(ExitCode::SUCCESS);
    }
    jars()?;
    let dir = target_dir().join("lab");
    std::fs::create_dir_all(&dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let link = dir.join("link");
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(&link).arg(workspace_root().join("bench/lab/link.c"));
    run_command("cc", &mut compile, b"", BUILD_WITHIN)?.succeeded()?;
    let own = std::env::current_exe().map_err(|error| Failure::new(format!("own program: {error}")))?;
    let mut inside = Command::new(&link);
    inside.args([DELAY_US, MTU]).arg(own).args(["lab", "nagle", INSIDE]);
    inside.args([
        "--messages",
        &options.messages.to_string(),
        "--repeat",
        &options.repeat.to_string(),
        "--svg",
    ]);
    inside.arg(&options.svg);
    inside.env("OTTLA_BIN", our_binary()?).env("OTTLA_LAB_LIBRDKAFKA", librdkafka_program()?);
    let status = inside.status().map_err(|error| Failure::new(format!("link: {error}")))?;
    if status.code() == Some(NOT_ALLOWED) {
        println!(
            "lab nagle: skipped: this system does not allow network namespaces with TUN devices (see above)"
        );
        return Ok(ExitCode::SUCCESS);
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A client with a setting of `socket.nagle.disable`.
struct Subject {
    name: &'static str,
    nagle: bool,
    program: PathBuf,
    samples: Samples,
}

impl Subject {
    fn label(&self) -> String {
        format!("{}, Nagle {}", self.name, if self.nagle { "on" } else { "off" })
    }
}

fn measure(options: &Options) -> Result<(), Failure> {
    let files = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let (certificate, keys) = certificate(files.path())?;
    let location = keys.display().to_string();
    let properties =
        [("ssl.keystore.type", "PEM"), ("ssl.keystore.location", &*location), ("ssl.client.auth", "none")];
    let kafka = KafkaCluster::start_with(
        1,
        &KafkaOptions {
            properties: &properties,
            listeners: &[("TLS", "SSL")],
            warm: true,
            ..KafkaOptions::default()
        },
    )?;
    let variable = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).ok_or_else(|| Failure::new(format!("{name} is not set")))
    };
    let (ottla, librdkafka, far) =
        (variable("OTTLA_BIN")?, variable("OTTLA_LAB_LIBRDKAFKA")?, variable("LAB_FAR")?);
    let mut create = Command::new(&ottla);
    create.args(["topics", "create", "lab", "--brokers", &kafka.bootstrap()]);
    run_command("ottla topics create", &mut create, b"", RUN_WITHIN)?.succeeded()?;
    let payload = files.path().join("payload");
    let line = "x".repeat(VALUE_BYTES) + "\n";
    std::fs::write(&payload, line.repeat(16)).map_err(|error| Failure::new(error.to_string()))?;

    let subject = |name, nagle, program: &Path| Subject {
        name,
        nagle,
        program: program.to_owned(),
        samples: Samples::default(),
    };
    let mut subjects = [
        subject("librdkafka", true, &librdkafka),
        subject("librdkafka", false, &librdkafka),
        subject("Ottla", true, &ottla),
        subject("Ottla", false, &ottla),
    ];
    let bootstrap = kafka.listener("TLS").to_string();
    let count = options.messages.to_string();
    for pass in 1..=options.repeat {
        for subject in &mut subjects {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", far.display())).arg(&subject.program);
            if subject.name == "Ottla" {
                command.args(["bench", "pingpong", "--json"]);
            } else {
                command.arg("pingpong");
            }
            command.args(["--brokers", &bootstrap, "--topic", "lab", "--count", &count, "--warmup", "20"]);
            command.arg("--payload").arg(&payload).args(["-X", "security.protocol=ssl", "-X"]);
            command.arg(format!("ssl.ca.location={}", certificate.display()));
            command.args(["-X", &format!("socket.nagle.disable={}", !subject.nagle)]);
            let output = run_command(&subject.label(), &mut command, b"", RUN_WITHIN)?.succeeded()?;
            let report = Report::parse(&subject.label(), output.stdout_text())?;
            subject.samples.add("rate", report.number("/msgs_per_s")?);
            for (field, path) in [("p50", "/ack_us/p50"), ("p99", "/ack_us/p99")] {
                subject.samples.add(field, report.number(path)? / 1e3);
            }
            println!("pass {pass}: {}: {:.0} messages/s", subject.label(), report.number("/msgs_per_s")?);
        }
    }
    print!("\n{}", table(options, &subjects));
    std::fs::write(&options.svg, plot(&subjects))
        .map_err(|error| Failure::new(format!("{}: {error}", options.svg.display())))?;
    println!("plot: {}", options.svg.display());
    Ok(())
}

/// A certificate that is its own authority, and a file with it and its key.
fn certificate(dir: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let (certificate, key, both) = (dir.join("certificate.pem"), dir.join("key.pem"), dir.join("both.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]);
    openssl
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    run_command("openssl", &mut openssl, b"", BUILD_WITHIN)?.succeeded()?;
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    };
    let text = read(&key)? + &read(&certificate)?;
    std::fs::write(&both, text).map_err(|error| Failure::new(format!("{}: {error}", both.display())))?;
    Ok((certificate, both))
}

fn table(options: &Options, subjects: &[Subject]) -> String {
    let librdkafka = |nagle| {
        let same = subjects.iter().find(|it| it.name == "librdkafka" && it.nagle == nagle);
        same.and_then(|it| it.samples.median("rate"))
    };
    let rows: Vec<_> = subjects
        .iter()
        .map(|it| {
            let times = it.samples.median("rate").zip(librdkafka(it.nagle)).map(|(own, its)| own / its);
            vec![
                it.label(),
                it.samples.spread("rate"),
                it.samples.spread("p50"),
                it.samples.spread("p99"),
                times.map_or_else(String::new, |times| format!("{times:.2}")),
            ]
        })
        .collect();
    let title = format!(
        "produce and flush over TLS, {VALUE_BYTES} bytes, {DELAY_US} us each way, MTU {MTU}, {} messages, {} passes",
        options.messages, options.repeat
    );
    markdown(&title, &["client", "messages/s", "median, ms", "p99, ms", "times librdkafka's rate"], &rows)
}

/// Two bars per client: its median round trip, and the slowest of a hundred.
fn plot(subjects: &[Subject]) -> String {
    let value = |it: &Subject, field| it.samples.median(field).unwrap_or(0.0);
    let most = subjects.iter().map(|it| value(it, "p99")).fold(1.0, f64::max);
    let height = 50.0 + ROW * subjects.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <text x=\"10\" y=\"22\">Round trip of one message over TLS, in milliseconds: median (dark), p99 (light)</text>\n",
        LEFT + WIDTH + 80.0
    );
    for (row, subject) in subjects.iter().enumerate() {
        let top = 40.0 + ROW * row as f64;
        let _ = writeln!(svg, "<text x=\"10\" y=\"{:.0}\">{}</text>", top + 20.0, subject.label());
        for (field, offset, colour) in [("p50", 2.0, "#27406b"), ("p99", 18.0, "#9db4d8")] {
            let ms = value(subject, field);
            let (y, width) = (top + offset, WIDTH * ms / most);
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.0}\" font-size=\"11\">{ms:.2}</text>",
                LEFT + width + 5.0,
                y + 11.0
            );
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_has_the_full_width() {
        let subject = |p99| {
            let mut samples = Samples::default();
            samples.add("p50", 1.0);
            samples.add("p99", p99);
            Subject { name: "Ottla", nagle: true, program: PathBuf::new(), samples }
        };
        let svg = plot(&[subject(2.0), subject(40.0)]);
        assert!(svg.contains("width=\"480.0\"") && svg.contains("width=\"24.0\""), "{svg}");
    }
}
