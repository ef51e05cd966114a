//! The layout of librdkafka's C++ classes: programs compiled with the original's header run on ours.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Debian, Failure, Librdkafka, Peer, compile, require, run, workspace_root};

const RUN_WITHIN: Duration = Duration::from_secs(120);

/// A program is generated from the virtual functions that the original's header declares. It prints the slot of each
/// in the table of virtual functions, and the size of each class. It prints the same when compiled with our header.
#[test]
fn classes_have_the_originals_virtual_functions_in_the_originals_slots() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let debian = Debian::unpacked()?;
    let header = read(&debian.include().join("librdkafka/rdkafkacpp.h"))?;
    let source = scratch.path().join("layout.cpp");
    let (program, functions) = layout_program(&header);
    assert!(functions > 150, "only {functions} virtual functions were found");
    std::fs::write(&source, program)
        .map_err(|error| Failure::new(format!("{}: {error}", source.display())))?;

    let ours = Librdkafka::ours()?;
    let layout = |name: &str, include: &Path, lib: PathBuf| {
        let program = scratch.path().join(name);
        compile(&source, include, &[&lib], &program, &["-Wno-deprecated-declarations"])?;
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", &lib);
        Ok::<Vec<String>, Failure>(run(name, &mut command, b"", RUN_WITHIN)?.succeeded()?.lines())
    };
    let expected = layout("original", &debian.include(), debian.lib()?)?;
    let found = layout("ours", ours.include(), ours.lib().to_path_buf())?;
    assert!(expected.len() > functions, "{} lines for {functions} functions", expected.len());
    let different: Vec<_> =
        expected.iter().zip(&found).filter(|(expected, found)| expected != found).collect();
    assert!(different.is_empty() && expected.len() == found.len(), "the original, ours: {different:#?}");
    Ok(())
}

/// A Conf has room for the fields of a class that only exists by a cast, as the original's has.
#[test]
fn a_conf_can_be_cast_to_a_subclass_with_fields() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    agrees("foreign_subclass")
}

#[test]
fn a_topic_without_a_conf_has_the_settings_of_its_client() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    agrees("topic_defaults")
}

/// Compiles a program with the original's headers; it prints the same on both libraries.
fn agrees(name: &str) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join(name);
    let source = workspace_root().join(format!("interop/c/{name}.cpp"));
    let (debian, ours) = (Debian::unpacked()?, Librdkafka::ours()?);
    compile(&source, &debian.include(), &[&debian.lib()?], &program, &["-Werror"])?;
    let on = |name: &str, lib: &Path| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", lib);
        Ok::<Vec<String>, Failure>(run(name, &mut command, b"", RUN_WITHIN)?.succeeded()?.lines())
    };
    assert_eq!(on("on ours", ours.lib())?, on("on the original", &debian.lib()?)?);
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// The source of the program, and the number of virtual functions that it prints.
fn layout_program(header: &str) -> (String, usize) {
    let mut program = String::from(
        "#include <cstdio>\n#include <cstring>\n#include <librdkafka/rdkafkacpp.h>\nusing namespace RdKafka;\n\
         template <typename F> void slot(const char *name, F function) {\n  long slot;\n  \
         memcpy(&slot, &function, sizeof(slot));\n  printf(\"%s %ld\\n\", name, slot);\n}\n",
    );
    let mut calls = String::new();
    let mut functions = 0;
    for (class, declarations) in classes(header) {
        let _ = writeln!(program, "struct Of{class} : {class} {{\n  static void print() {{");
        let _ = writeln!(program, "    printf(\"{class} %zu\\n\", sizeof({class}));");
        for declaration in declarations {
            let Some((result, name, arguments)) = parts(&declaration) else { continue };
            let _ = writeln!(
                program,
                "    {{ {result} ({class}::*f){arguments} = &{class}::{name}; slot(\"{class}::{name}\", f); }}"
            );
            functions += 1;
        }
        program.push_str("  }\n};\n");
        let _ = writeln!(calls, "  Of{class}::print();");
    }
    let _ = writeln!(program, "int main() {{\n{calls}  return 0;\n}}");
    (program, functions)
}

/// The classes with virtual functions, each with the declarations of its virtual functions: `void f(int a) const`.
fn classes(header: &str) -> Vec<(String, Vec<String>)> {
    let mut classes: Vec<(String, Vec<String>)> = Vec::new();
    // For every open brace the index of the class that it opened.
    let mut open: Vec<Option<usize>> = Vec::new();
    for statement in without_comments(header).split_inclusive([';', '{', '}']) {
        let (statement, end) = statement.split_at(statement.len().saturating_sub(1));
        let words: Vec<&str> = statement.split_whitespace().filter(|word| *word != "public:").collect();
        match (&words[..], end) {
            // A definition: `class RD_EXPORT Conf {`, `class Producer : public virtual Handle {`.
            (["class", "RD_EXPORT", name, ..] | ["class", name, ..], "{") => {
                open.push(Some(classes.len()));
                classes.push(((*name).to_owned(), Vec::new()));
                continue;
            }
            (["virtual", declaration @ ..], _) => {
                if let Some(&class) = open.iter().flatten().last() {
                    classes[class].1.push(declaration.join(" "));
                }
            }
            _ => {}
        }
        match end {
            "{" => open.push(None),
            "}" => drop(open.pop()),
            _ => {}
        }
    }
    classes.retain(|(_, declarations)| !declarations.is_empty());
    classes
}

/// The result, the name and the arguments with their `const`. Nothing for a destructor, which has no address.
fn parts(declaration: &str) -> Option<(&str, &str, &str)> {
    let declaration = declaration.strip_suffix("= 0").unwrap_or(declaration);
    let (before, _) = declaration.split_once('(')?;
    let arguments = &declaration[before.len()..];
    let start = before.rfind([' ', '*', '&'])? + 1;
    let (result, name) = before.split_at(start);
    (!name.starts_with('~')).then_some((result, name, arguments))
}

fn without_comments(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).fold(
        String::new(),
        |mut all, line| {
            if !line.starts_with('#') {
                all.push_str(line);
                all.push('\n');
            }
            all
        },
    )
}
