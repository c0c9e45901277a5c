//! Makes a model to load: files in the form of safetensors, with the shapes of a transformer of 7 billion numbers and as
//! many layers as the size takes. Its tensors lie at multiples of 8, and not of a page.
//!
//! `cargo run --release --example make_model -- FOLDER [SIZE [FILES]]`: bytes, as `4GiB`, the default, and 4 files. What
//! is in them is pseudo-random and the same for the same size. Beside them lies `model.safetensors.index.json`.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use gpumap::settings::parse_bytes;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Numbers of 16 bits.
struct Tensor {
    name: String,
    shape: Vec<u64>,
}

impl Tensor {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * 2
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = args.first().ok_or("name a folder to make the model in")?;
    let size = args.get(1).map_or("4GiB", String::as_str);
    let size = parse_bytes(size).ok_or("the size is a number of bytes, as 4GiB or 3MiB")?;
    let files = args
        .get(2)
        .map_or(Ok(4), |files| files.parse::<usize>())?
        .max(1);
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    let tensors = model(size);
    let all: u64 = tensors.iter().map(Tensor::bytes).sum();
    let mut map = String::new();
    let mut rest = tensors.as_slice();
    for number in 1..=files {
        let name = format!("model-{number:05}-of-{files:05}.safetensors");
        let shard = front(&mut rest, all.div_ceil(files as u64), number == files);
        write_shard(&folder.join(&name), shard, number as u64)?;
        for tensor in shard {
            let comma = if map.is_empty() { "" } else { "," };
            write!(map, "{comma}\n\"{}\":\"{name}\"", tensor.name)?;
        }
    }
    let index = format!("{{\"metadata\":{{\"total_size\":{all}}},\"weight_map\":{{{map}\n}}}}\n");
    std::fs::write(folder.join("model.safetensors.index.json"), index)?;
    println!("{} tensors, {all} bytes, in {files} files", tensors.len());
    Ok(())
}

/// As many layers as there is room for; narrower ones than a real model has, where it is small.
fn model(size: u64) -> Vec<Tensor> {
    let wide = if size >= 2 << 30 { 4096 } else { 64 };
    let tensor = |name: String, shape: &[u64]| Tensor {
        name,
        shape: shape.to_vec(),
    };
    let mut tensors = vec![
        tensor("model.embed_tokens.weight".into(), &[wide * 8 - 44, wide]),
        tensor("lm_head.weight".into(), &[wide * 8 - 44, wide]),
        tensor("model.norm.weight".into(), &[wide]),
    ];
    let mut left = size.saturating_sub(tensors.iter().map(Tensor::bytes).sum());
    for layer in 0.. {
        let of = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let mut all: Vec<Tensor> = ["q", "k", "v", "o"]
            .map(|part| tensor(of(&format!("self_attn.{part}_proj")), &[wide, wide]))
            .into();
        let inner = wide * 43 / 16;
        all.extend(
            ["gate", "up"].map(|part| tensor(of(&format!("mlp.{part}_proj")), &[inner, wide])),
        );
        all.push(tensor(of("mlp.down_proj"), &[wide, inner]));
        all.extend(
            ["input_layernorm", "post_attention_layernorm"].map(|part| tensor(of(part), &[wide])),
        );
        // Not of a layer of 7 billion: small ones, at odd multiples of 8, as biases and scales are.
        let small = |part: String| tensor(of(&part), &[4 * (1 + layer % 7)]);
        all.extend((0..8).map(|n| small(format!("self_attn.scale_{n}"))));
        let bytes: u64 = all.iter().map(Tensor::bytes).sum();
        if bytes > left {
            break;
        }
        left -= bytes;
        tensors.extend(all);
    }
    tensors
}

/// Takes tensors off the front until there are so many bytes; all of them for the last file.
fn front<'t>(rest: &mut &'t [Tensor], bytes: u64, last: bool) -> &'t [Tensor] {
    let mut at = 0;
    let full = rest.iter().position(|tensor| {
        at += tensor.bytes();
        at >= bytes
    });
    let count = full.filter(|_| !last).map_or(rest.len(), |full| full + 1);
    let (front, behind) = rest.split_at(count);
    *rest = behind;
    front
}

fn write_shard(path: &Path, tensors: &[Tensor], seed: u64) -> Result<()> {
    let mut header = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    let mut end = 0;
    for tensor in tensors {
        let (start, shape) = (end, &tensor.shape);
        end += tensor.bytes();
        let name = &tensor.name;
        write!(
            header,
            ",\"{name}\":{{\"dtype\":\"BF16\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        )?;
    }
    header.push('}');
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    for _ in 0..end / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}
