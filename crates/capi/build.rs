//! The library's name for the dynamic linker, and the C part that reads variable arguments.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/varargs.c");
    println!("cargo:rerun-if-changed=include");
    // Programs that find two libraries must not mix them: our functions call ours.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librdkafka.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    cc::Build::new()
        .file("src/varargs.c")
        .std("c99")
        .warnings(true)
        .extra_warnings(true)
        .compile("ottla_varargs");
}
