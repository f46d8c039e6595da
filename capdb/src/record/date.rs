//! Days of the calendar, as records write them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Whether a text is a day of the Gregorian calendar, "2026-11-29".
pub fn is_date(text: &str) -> bool {
    let fits = |(index, byte): (usize, u8)| if matches!(index, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    if text.len() != 10 || !text.bytes().enumerate().all(fits) {
        return false;
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or(0);
    let (year, month, day) = (part(0..4), part(5..7), part(8..10));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// A date as records give it. Errors: no day of the calendar.
pub(super) fn read_date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text.as_deref().and_then(date_fault) {
        Some(fault) => Err(D::Error::custom(fault)),
        None => Ok(text),
    }
}

/// What is wrong with a date.
pub fn date_fault(text: &str) -> Option<String> {
    (!is_date(text)).then(|| format!("`date` cannot be `{text}`; write a day like 2026-11-29"))
}

#[cfg(test)]
mod tests {
    use super::is_date;

    #[test]
    fn dates_are_days_of_the_calendar() {
        for day in ["2026-11-29", "2024-02-29", "2000-02-29", "2026-12-31", "2026-04-30"] {
            assert!(is_date(day), "{day}");
        }
        for none in ["2026-02-30", "2026-02-29", "1900-02-29", "2026-04-31", "2026-13-01", "2026-00-10", "2026-01-00"] {
            assert!(!is_date(none), "{none}");
        }
        for form in ["", "2026-1-01", "2026/01/01", "2026-01-01T00", "٢٠٢٦-01", "20260101xx"] {
            assert!(!is_date(form), "{form}");
        }
    }
}
