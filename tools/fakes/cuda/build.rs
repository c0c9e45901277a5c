//! Gives the shared object the name that loaders of the driver ask for: once it is loaded by its
//! path, `dlopen("libcuda.so")` finds it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
