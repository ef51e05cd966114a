//! The library's name for the dynamic linker, and the C files: variable arguments, and the loops that run callbacks.

const C_FILES: [&str; 2] = ["src/callbacks/trampoline.c", "src/ffi/varargs.c"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for file in C_FILES {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-changed=include");
    // Programs that find two libraries must not mix them: our functions call ours.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librdkafka.so.1");
    // The library exports functions only. Zig's linker does not have `-Bsymbolic-functions`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    cc::Build::new()
        .files(C_FILES)
        // Exceptions and `pthread_exit` of callbacks pass these functions and run their cleanups.
        .flag("-fexceptions")
        .std("c99")
        .warnings(true)
        .extra_warnings(true)
        .compile("ottla_c");
}
