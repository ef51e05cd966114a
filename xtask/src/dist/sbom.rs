//! The bills of materials, in the JSON of CycloneDX: the crates that each shipped binary contains.

use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run};
use serde_json::{Value, json};

use super::Shipped;
use super::layout::VERSION;
use super::oci::{DEBIAN, digest, rfc3339};
use super::tools;
use super::tree::read;
use super::twice::copy_sources;

/// Folders of the shipped crates, with the name of the product.
const PRODUCTS: &[(&str, &str)] = &[("crates/cli", "ottla"), ("crates/capi", "libottla-rdkafka")];

/// cargo-cyclonedx writes next to the manifests, under this name.
const WRITTEN: &str = "bill-of-materials";

const LISTED_WITHIN: Duration = Duration::from_secs(5 * 60);

/// One document per product.
pub(crate) fn documents(epoch_s: u64) -> Result<Shipped, Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let sources = scratch.path().join("ottla");
    copy_sources(&sources)?;
    let mut shipped = Shipped::new();
    for (folder, product) in PRODUCTS {
        let mut command = Command::new(tools::cyclonedx()?);
        command.args(["cyclonedx", "--format", "json", "--spec-version", "1.5", "--target"]);
        command.args(["x86_64-unknown-linux-gnu", "--no-build-deps", "--override-filename", WRITTEN]);
        command.arg("--manifest-path").arg(sources.join(folder).join("Cargo.toml"));
        command.env("SOURCE_DATE_EPOCH", epoch_s.to_string());
        run("cargo-cyclonedx", &mut command, b"", LISTED_WITHIN)?.succeeded()?;
        let written = read(&sources.join(folder).join(format!("{WRITTEN}.json")))?;
        let document = normal(&String::from_utf8_lossy(&written), &sources.display().to_string(), epoch_s)?;
        if *product == "ottla" {
            let image = with_debian(&document, DEBIAN, &tools::debian_versions(DEBIAN)?)?;
            shipped.insert(format!("ottla-{VERSION}-oci.cdx.json"), numbered(image).into_bytes());
        }
        shipped.insert(format!("{product}-{VERSION}.cdx.json"), numbered(document).into_bytes());
    }
    Ok(shipped)
}

/// The document of the image: that of the command, and the packages of Debian.
fn with_debian(command: &Value, packages: &[&str], versions: &[String]) -> Result<Value, Failure> {
    let mut document = command.clone();
    let components = document["components"].as_array_mut();
    let components = components.ok_or_else(|| Failure::new("cargo-cyclonedx: no list of components"))?;
    components.extend(packages.iter().zip(versions).map(|(name, version)| {
        let purl = format!("pkg:deb/debian/{name}@{version}?arch=amd64");
        json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl })
    }));
    Ok(document)
}

/// The document without the directory of the copy, a random number or the time of its writing.
fn normal(written: &str, sources: &str, epoch_s: u64) -> Result<Value, Failure> {
    let text = written.replace(sources, "/usr/src/ottla");
    let mut document: Value =
        serde_json::from_str(&text).map_err(|error| Failure::new(format!("cargo-cyclonedx: {error}")))?;
    document["metadata"]["timestamp"] = rfc3339(epoch_s).into();
    document.as_object_mut().map(|object| object.remove("serialNumber"));
    Ok(document)
}

/// The text of the document, with a number that depends on its contents: a UUID of version 8.
fn numbered(mut document: Value) -> String {
    let hex = digest(document.to_string().as_bytes()).replace("sha256:", "");
    let uuid = format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32]);
    document["serialNumber"] = format!("urn:uuid:{uuid}").into();
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_does_not_depend_on_the_machine_or_the_time() {
        let written = |dir: &str, serial: &str| {
            format!(
                r#"{{"serialNumber":"urn:uuid:{serial}","metadata":{{"timestamp":"{serial}"}},
                    "components":[{{"bom-ref":"path+file://{dir}/crates/cli#0.1.0"}}]}}"#
            )
        };
        let one = numbered(normal(&written("/tmp/a", "1"), "/tmp/a", 17).unwrap());
        let other = numbered(normal(&written("/home/b", "2"), "/home/b", 17).unwrap());
        assert_eq!(one, other);
        assert!(one.contains("path+file:///usr/src/ottla/crates/cli#0.1.0"), "{one}");
        assert!(one.contains("1970-01-01T00:00:17Z"), "{one}");
    }
    #[test]
    fn the_document_of_the_image_has_debian_s_packages() {
        let command = json!({ "components": [{ "name": "bytes" }] });
        let image = with_debian(&command, &["libc6"], &["2.36-9".to_owned()]).unwrap();
        assert_eq!(image["components"][1]["purl"], "pkg:deb/debian/libc6@2.36-9?arch=amd64");
        assert!(with_debian(&json!({}), &[], &[]).is_err());
    }
}
