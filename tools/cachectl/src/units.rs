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
    } else if speed >= 0.999_5e6 {
        format!("{} MB/s", digits(speed / 1e6))
    } else {
        format!("{} kB/s", digits(speed / 1e3))
    }
}

/// For the columns of a table, in which numbers are compared: each in one unit, however large or small.
pub(crate) mod column {
    use super::digits;

    /// `885 ms`, `0.085 ms`.
    pub(crate) fn seconds(seconds: f64) -> String {
        format!("{} ms", small(seconds * 1e3))
    }

    /// `4037 MB/s`.
    pub(crate) fn bytes_per_second(speed: f64) -> String {
        format!("{} MB/s", small(speed / 1e6))
    }

    /// `51.2 k rows/s`, `1009 k rows/s`.
    pub(crate) fn rows_per_second(speed: f64) -> String {
        format!("{} k rows/s", small(speed / 1e3))
    }

    /// More decimals where two would show little or nothing of it.
    fn small(number: f64) -> String {
        match number {
            n if n < 0.099_95 => format!("{n:.4}"),
            n if n < 0.999_5 => format!("{n:.3}"),
            n => digits(n),
        }
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
        assert_eq!(bytes_per_second(20_300.0), "20.3 kB/s");
    }

    #[test]
    fn a_column_has_one_unit() {
        let times = [12.3, 0.885, 0.000_085_2, 0.000_001_23].map(column::seconds);
        assert_eq!(times, ["12300 ms", "885 ms", "0.0852 ms", "0.0012 ms"]);
        let speeds = [55.3e9, 98.76e6, 0.2e6].map(column::bytes_per_second);
        assert_eq!(speeds, ["55300 MB/s", "98.8 MB/s", "0.200 MB/s"]);
        let rows = [1_240_000.0, 812.0].map(column::rows_per_second);
        assert_eq!(rows, ["1240 k rows/s", "0.812 k rows/s"]);
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
