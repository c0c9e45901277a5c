//! Numbers for people.

/// Three significant digits or so: `9.87`, `98.7`, `987`.
fn digits(number: f64) -> String {
    let decimals = match number.abs() {
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

/// `85.0 µs`, `3.14 ms`, `1.20 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    let (number, unit) = if seconds >= 0.999_5 {
        (seconds, "s")
    } else if seconds >= 0.000_999_5 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    format!("{} {unit}", digits(number))
}

/// `4K`, `1M`, `6000`: as an option takes it.
pub(crate) fn block(bytes: u64) -> String {
    let units = [
        (1 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "K"),
    ];
    units
        .into_iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
        .map_or_else(
            || bytes.to_string(),
            |(unit, name)| format!("{}{name}", bytes / unit),
        )
}

/// `1.32 GB/s`, by powers of ten as storage is sold.
pub(crate) fn bytes_per_second(speed: f64) -> String {
    if speed >= 0.999_5e9 {
        format!("{} GB/s", digits(speed / 1e9))
    } else {
        format!("{} MB/s", digits(speed / 1e6))
    }
}

/// `812 rows/s`, `51.2 k rows/s`, `1.24 M rows/s`.
pub(crate) fn rows_per_second(speed: f64) -> String {
    if speed >= 0.999_5e6 {
        format!("{} M rows/s", digits(speed / 1e6))
    } else if speed >= 0.999_5e3 {
        format!("{} k rows/s", digits(speed / 1e3))
    } else {
        format!("{} rows/s", digits(speed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(seconds(0.000_085), "85.0 µs");
        assert_eq!(seconds(0.003_141), "3.14 ms");
        assert_eq!(seconds(0.999_9), "1.00 s");
        assert_eq!(seconds(123.4), "123 s");
        assert_eq!(bytes_per_second(1.324e9), "1.32 GB/s");
        assert_eq!(bytes_per_second(98.76e6), "98.8 MB/s");
        assert_eq!(rows_per_second(812.0), "812 rows/s");
        assert_eq!(rows_per_second(51_234.0), "51.2 k rows/s");
        assert_eq!(rows_per_second(1_240_000.0), "1.24 M rows/s");
    }

    #[test]
    fn a_block_is_shown_as_the_option_takes_it() {
        for (number, shown) in [
            (4096, "4K"),
            (1 << 20, "1M"),
            (6000, "6000"),
            (1 << 30, "1G"),
            (3 << 19, "1536K"),
        ] {
            assert_eq!(block(number), shown);
            assert_eq!(gpumap::settings::parse_bytes(shown), Some(number));
        }
    }
}
