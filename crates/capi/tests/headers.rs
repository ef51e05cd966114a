//! Our headers say what the library does: every function is declared, every constant and layout is the one in Rust, and
//! C and C++ compilers take them without a warning.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const HEADERS: [&str; 3] = [
    include_str!("../include/rdkafka.h"),
    include_str!("../include/rdkafka_mock.h"),
    include_str!("../include/ottla.h"),
];
const CONSTANTS: [&str; 3] = [
    include_str!("../src/ffi/error_codes.rs"),
    include_str!("../src/ffi/values.rs"),
    include_str!("../src/processor/handler_call.rs"),
];
const STRUCTS: [&str; 2] = [include_str!("../src/ffi/structs.rs"), include_str!("../src/processor/stats.rs")];

#[test]
fn every_function_is_declared_once_and_no_other() {
    let lists = [include_str!("../abi/symbols.txt"), include_str!("../abi/ottla.txt")];
    let wanted: BTreeSet<&str> = lists.iter().flat_map(|list| list.lines()).collect();
    let mut declared = BTreeSet::new();
    for declaration in HEADERS.iter().flat_map(|header| header.split("RD_EXPORT ").skip(1)) {
        let Some((before, _)) = declaration.split_once('(') else { continue };
        let is_ours = |name: &&str| name.starts_with("rd_kafka_") || name.starts_with("ottla_");
        let Some(name) = before.rsplit([' ', '*', '\n']).next().filter(is_ours) else {
            continue;
        };
        assert!(declared.insert(name), "{name} is declared twice");
    }
    let missing: Vec<_> = wanted.difference(&declared).collect();
    let surplus: Vec<_> = declared.difference(&wanted).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "not declared: {missing:?}; not exported: {surplus:?}");
}

#[test]
fn constants_and_layouts_are_those_in_rust() {
    let mut source = String::from(
        "#include <stddef.h>\n#include \"rdkafka.h\"\n#include \"rdkafka_mock.h\"\n#include \"ottla.h\"\n",
    );
    let mut checks = 0;
    for constant in CONSTANTS.iter().flat_map(|file| file.split("pub const ").skip(1)) {
        let (declaration, _) = constant.split_once(';').expect("a constant ends");
        let (name, value) = declaration.split_once('=').expect("a constant has a value");
        let (name, value) = (name.split(':').next().unwrap_or_default(), value.trim());
        let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let value = if is_number { value.replace('_', "") } else { value.to_owned() };
        writeln!(source, "_Static_assert({name} == {value}, \"{name}\");").expect("a string takes all");
        checks += 1;
    }
    let layouts = STRUCTS.iter().flat_map(|file| file.split("layout!(").skip(1));
    for layout in layouts.filter(|layout| layout.starts_with("rd_kafka_") || layout.starts_with("ottla_")) {
        let (name, fields) = layout.split_once(',').expect("a size follows");
        let (size, fields) = fields.split_once(':').expect("fields follow");
        let in_c = if name.starts_with("rd_kafka_group_") || name == "rd_kafka_err_desc" {
            format!("struct {name}")
        } else {
            name.into()
        };
        writeln!(source, "_Static_assert(sizeof({in_c}) == {}, \"{name}\");", size.trim())
            .expect("a string takes all");
        for field in fields.split_once(");").expect("it ends").0.split(',') {
            let (field, offset) = field.trim().split_once(' ').expect("a field has an offset");
            writeln!(source, "_Static_assert(offsetof({in_c}, {field}) == {offset}, \"{name}.{field}\");")
                .expect("a string takes all");
            checks += 1;
        }
    }
    assert!(checks > 350, "only {checks} constants and fields were found");
    compile("cc", &["-std=c11"], "c", &source);
}

#[test]
fn c_and_cpp_compilers_take_them_without_a_warning() {
    let source = "#include \"rdkafka.h\"\n#include \"rdkafka_mock.h\"\n#include \"ottla.h\"\n
        rd_kafka_resp_err_t f(rd_kafka_t *rk, rd_kafka_topic_t *rkt, rd_kafka_headers_t *hdrs);
        rd_kafka_resp_err_t f(rd_kafka_t *rk, rd_kafka_topic_t *rkt, rd_kafka_headers_t *hdrs) {
            const char *key = \"k\";
            return rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(\"t\"), RD_KAFKA_V_RKT(rkt), RD_KAFKA_V_PARTITION(1),
                RD_KAFKA_V_VALUE((void *)key, 1), RD_KAFKA_V_KEY(key, 1), RD_KAFKA_V_OPAQUE(hdrs),
                RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_TIMESTAMP(5), RD_KAFKA_V_HEADER(\"n\", key, 1),
                RD_KAFKA_V_HEADERS(hdrs), RD_KAFKA_V_END);
        }\n";
    for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
        compile("cc", &[standard, "-pedantic", "-Wall", "-Wextra"], "c", source);
    }
    for standard in ["-std=c++11", "-std=c++17"] {
        compile("c++", &[standard, "-pedantic", "-Wall", "-Wextra"], "c++", source);
    }
}

fn compile(compiler: &str, options: &[&str], language: &str, source: &str) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("source");
    std::fs::write(&file, source).expect("the source is written");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let done = Command::new(compiler)
        .args(options)
        .args(["-Werror", "-fsyntax-only", "-x", language, "-I"])
        .arg(headers)
        .arg(&file)
        .output()
        .expect("a compiler");
    assert!(done.status.success(), "{compiler} {options:?}:\n{}", String::from_utf8_lossy(&done.stderr));
}
