//! `ottla broker --secure`, listeners beyond loopback, and `ottla users`.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::operation::{bootstrap, end, start};
use crate::support::{Ended, Running, binary, command, ottla};

/// Runs a command with a configuration that `--secure` has written.
fn with(directory: &Path, config: &str, args: &[&str], stdin: &str) -> Ended {
    let config = directory.join(config);
    ottla(&[args, &["--config", config.to_str().expect("UTF-8")]].concat(), stdin)
}

#[test]
fn a_secure_broker_writes_configurations_that_work_and_lets_no_others_in() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("secure");
    let path = directory.to_str().expect("UTF-8");
    let (broker, ready) = start(&["--secure", path, "--topic", "orders"]);
    assert_eq!(ready["nodes"][0]["listener"], "SECURE");
    for user in ["admin", "client"] {
        with(&directory, &format!("{user}.properties"), &["produce", "orders"], "hello\n").succeeded();
    }
    let consumed = with(&directory, "client.properties", &["consume", "orders", "-e"], "").succeeded();
    assert_eq!(consumed.stdout.lines().count(), 2);
    let address = bootstrap(&ready);
    let fast = ["-X", "socket.connection.setup.timeout.ms=2000"];
    ottla(&[&["topics", "list", "--brokers", address], &fast[..]].concat(), "").failed(1, &[]);
    with(&directory, "client.properties", &["topics", "list", "-X", "sasl.password=wrong"], "")
        .failed(1, &["invalid credentials with SASL mechanism SCRAM-SHA-512"]);
    for entry in std::fs::read_dir(&directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("metadata").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.path());
    }
    end(broker);
    let passwords = std::fs::read_to_string(directory.join("passwords")).expect("readable");
    let authority = std::fs::read_to_string(directory.join("ca.pem")).expect("readable");
    let java = std::fs::read_to_string(directory.join("client-java.properties")).expect("readable");
    assert!(java.contains("ScramLoginModule") && java.contains("ssl.truststore.type=PEM"), "{java}");
    // The next start has the same authority and passwords, at another address.
    let (broker, _) = start(&["--secure", path]);
    assert_eq!(std::fs::read_to_string(directory.join("passwords")).expect("readable"), passwords);
    assert_eq!(std::fs::read_to_string(directory.join("ca.pem")).expect("readable"), authority);
    with(&directory, "client.properties", &["topics", "list"], "").succeeded();
    end(broker);
}

#[test]
fn users_are_added_listed_and_deleted() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("secure");
    let (broker, _) = start(&["--secure", directory.to_str().expect("UTF-8"), "--topic", "orders"]);
    let admin = |args: &[&str]| with(&directory, "admin.properties", args, "");
    let file = scratch.path().join("password");
    std::fs::write(&file, "s3cret, and more\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    admin(&["users", "add", "alice", "--password-file", file]).succeeded();
    let listed = admin(&["users", "list"]).succeeded().stdout;
    assert_eq!(listed.lines().filter(|line| line.starts_with("alice")).count(), 2, "{listed}");
    let alice = || {
        let login = ["-X", "sasl.username=alice", "-X", "sasl.password=s3cret, and more"];
        with(&directory, "client.properties", &[&["topics", "list"], &login[..]].concat(), "")
    };
    alice().succeeded();
    let writes = || {
        let login = ["-X", "sasl.username=alice", "-X", "sasl.password=s3cret, and more"];
        with(&directory, "client.properties", &[&["produce", "orders"], &login[..]].concat(), "paid\n")
    };
    writes().failed(1, &["orders", "TOPIC_AUTHORIZATION_FAILED"]);
    let allowed = ["--principal", "User:alice", "--operation", "write", "--topic", "orders"];
    with(&directory, "client.properties", &[&["acls", "add"], &allowed[..]].concat(), "")
        .failed(1, &["CLUSTER_AUTHORIZATION_FAILED"]);
    admin(&[&["acls", "add"], &allowed[..]].concat()).succeeded();
    writes().succeeded();
    admin(&["users", "delete", "alice"]).succeeded();
    alice().failed(1, &["invalid credentials"]);
    admin(&["users", "delete", "alice"]).failed(1, &["alice"]);
    std::fs::write(file, "\n").expect("written");
    admin(&["users", "add", "alice", "--password-file", file]).failed(2, &["empty"]);
    end(broker);
}

/// The commands gave other rights, for instance on the cluster, and the next attempt failed as before.
#[test]
fn the_commands_that_a_missing_permission_names_help() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("secure");
    let (broker, _) = start(&["--secure", directory.to_str().expect("UTF-8"), "--topic", "orders"]);
    let admin = |args: &[&str]| with(&directory, "admin.properties", args, "");
    let file = scratch.path().join("password");
    std::fs::write(&file, "s3cret\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    admin(&["users", "add", "alice", "--password-file", file]).succeeded();
    let login = ["-X", "sasl.username=alice", "-X", "sasl.password=s3cret"];
    for args in [
        "topics create new",
        "topics configs orders --set retention.ms=3600000",
        "topics alter orders --partitions 2",
        "groups reset-offsets billing -t orders --to beginning --create --execute",
        "quotas set --user bo producer_byte_rate=1000000",
        "acls add --principal User:bo --operation read -t orders",
        &format!("users add bo --password-file {file}"),
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let mut given: Vec<String> = Vec::new();
        loop {
            let ended = with(&directory, "client.properties", &[&words[..], &login[..]].concat(), "");
            if ended.status.success() {
                break;
            }
            let ended = ended.failed(1, &["user `alice` needs an ACL: `ottla acls add "]);
            let command = ended.stderr.split('`').find(|part| part.starts_with("ottla acls add "));
            let command = command.expect("a command").to_owned();
            assert!(!given.contains(&command), "{args}: {ended:?}");
            admin(&command.split(' ').skip(1).collect::<Vec<_>>()).succeeded();
            given.push(command);
        }
    }
    end(broker);
}

#[test]
fn a_login_needs_no_file_of_properties() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("secure");
    let (broker, ready) = start(&["--secure", directory.to_str().expect("UTF-8"), "--topic", "orders"]);
    let passwords = std::fs::read_to_string(directory.join("passwords")).expect("readable");
    let password =
        passwords.lines().find_map(|line| line.strip_prefix("client:")).expect("a password of client");
    let ca = directory.join("ca.pem");
    let login = ["--tls-ca", ca.to_str().expect("UTF-8"), "--sasl-user", "client"];
    let list = [&["topics", "list", "--brokers", bootstrap(&ready)], &login[..]].concat();

    let file = scratch.path().join("password");
    std::fs::write(&file, format!("{password}\n")).expect("written");
    let from_file = [&list[..], &["--sasl-password-file", file.to_str().expect("UTF-8")]].concat();
    assert!(ottla(&from_file, "").succeeded().stdout.contains("orders"));
    let mut from_environment = command(&list);
    from_environment.env("OTTLA_SASL_PASSWORD", password);
    assert!(Running::start(&mut from_environment, "").wait().succeeded().stdout.contains("orders"));

    let wrong = [&from_file[..], &["--sasl-mechanism", "gssapi"]].concat();
    ottla(&wrong, "").failed(2, &["gssapi", "SCRAM-SHA-512"]);
    // `setsid` takes the terminal away.
    let mut without_terminal = Command::new("setsid");
    without_terminal.arg("--wait").arg(binary()).args(&list).env_remove("OTTLA_SASL_PASSWORD");
    Running::start(&mut without_terminal, "")
        .wait()
        .failed(2, &["OTTLA_SASL_PASSWORD", "--sasl-password-file FILE"]);
    end(broker);
}

#[test]
fn the_terminal_asks_for_the_password_of_a_login() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("secure");
    let (broker, ready) = start(&["--secure", directory.to_str().expect("UTF-8"), "--topic", "orders"]);
    let passwords = std::fs::read_to_string(directory.join("passwords")).expect("readable");
    let password =
        passwords.lines().find_map(|line| line.strip_prefix("client:")).expect("a password of client");
    let ottla = env!("CARGO_BIN_EXE_ottla");
    let (brokers, ca) = (bootstrap(&ready), directory.join("ca.pem"));
    let commands = format!(
        "{ottla} topics list --brokers {brokers} --tls-ca {} --sasl-user client; echo code $?",
        ca.display()
    );
    let mut script = Command::new("script");
    script.args(["-qec", &commands, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.env_remove("OTTLA_SASL_PASSWORD").spawn().expect("script of bsdutils");
    let mut stdin = script.stdin.take().expect("piped");
    let (mut stdout, mut shown) = (script.stdout.take().expect("piped"), Vec::new());
    while !shown.ends_with(b"Password of client: ") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("the question");
        shown.push(byte[0]);
    }
    stdin.write_all(format!("{password}\n").as_bytes()).expect("typed");
    stdout.read_to_end(&mut shown).expect("the end");
    script.wait().expect("ended");
    let shown = String::from_utf8(shown).expect("text");
    assert!(shown.contains("orders") && shown.contains("code 0"), "{shown}");
    assert!(!shown.contains(password), "{shown}");
    end(broker);
}

/// `script` gives the command a terminal.
#[test]
fn an_interrupted_question_for_a_password_leaves_the_terminal_as_it_was() {
    let ottla = env!("CARGO_BIN_EXE_ottla");
    let commands = format!("{ottla} users add alice --brokers 127.0.0.1:1; echo code $?; stty -a");
    let mut script = Command::new("script");
    script.args(["-qec", &commands, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.spawn().expect("script of bsdutils");
    let mut stdin = script.stdin.take().expect("piped");
    let (mut stdout, mut shown) = (script.stdout.take().expect("piped"), Vec::new());
    while !shown.ends_with(b"Password of alice: ") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("the question");
        shown.push(byte[0]);
    }
    // The question comes after the terminal was set.
    stdin.write_all(b"secr\x03").expect("typed");
    stdout.read_to_end(&mut shown).expect("the end");
    script.wait().expect("ended");
    let shown = String::from_utf8(shown).expect("text");
    assert!(shown.contains("cancelled") && shown.contains("code 1"), "{shown}");
    let flags: Vec<&str> = shown.split_whitespace().collect();
    assert!(flags.contains(&"isig") && flags.contains(&"echo"), "{shown}");
    assert!(!shown.contains("secr"), "{shown}");
}

#[test]
fn a_listener_beyond_loopback_needs_authentication_or_a_flag() {
    let args = ["broker", "--durability", "memory", "--listen", "0.0.0.0:0"];
    ottla(&args, "").failed(2, &["no authentication", "--secure DIR", "--insecure"]);
    let of_file = ["broker", "--durability", "memory", "-X", "listeners=PLAINTEXT://:0"];
    ottla(&of_file, "").failed(2, &["no authentication", "--insecure"]);
    // `start` listens on loopback, which needs no flag.
    let scratch = tempfile::tempdir().expect("a directory");
    let both = [&args[..], &["--insecure", "--secure", scratch.path().to_str().expect("UTF-8")]].concat();
    ottla(&both, "").failed(2, &["--insecure"]);
}
