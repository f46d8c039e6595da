//! Dates for `strftime_now`.

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const SECONDS_PER_DAY: u64 = 86_400;

/// A moment in UTC.
struct Moment {
    year: u64,
    /// From 1.
    month: u64,
    /// From 1.
    day: u64,
    /// From 1.
    day_of_year: u64,
    /// Sunday is 0.
    weekday: u64,
    second_of_day: u64,
}

/// Formats seconds since 1970 by C's `strftime` directives; `-` after `%` leaves out padding.
pub(super) fn format(seconds: u64, format: &str) -> Result<String, String> {
    let moment = Moment::new(seconds);
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let directive = rest.next();
        let (padded, directive) = match directive {
            Some('-') => (false, rest.next()),
            other => (true, other),
        };
        let formatted = directive.and_then(|directive| moment.part(directive, padded));
        text += &formatted.ok_or_else(|| {
            format!(
                "strftime_now: \"{format}\" has a directive that is not understood: %{}",
                directive.map_or_else(String::new, String::from)
            )
        })?;
    }
    Ok(text)
}

impl Moment {
    fn new(seconds: u64) -> Self {
        let days = seconds / SECONDS_PER_DAY;
        let (mut year, mut rest) = (1970, days);
        while rest >= days_in_year(year) {
            rest -= days_in_year(year);
            year += 1;
        }
        let day_of_year = rest + 1;
        let mut month = 1;
        while rest >= days_in_month(year, month) {
            rest -= days_in_month(year, month);
            month += 1;
        }
        // 1970 began on a Thursday.
        Self {
            year,
            month,
            day: rest + 1,
            day_of_year,
            weekday: (days + 4) % 7,
            second_of_day: seconds % SECONDS_PER_DAY,
        }
    }

    fn part(&self, directive: char, padded: bool) -> Option<String> {
        let two = |number: u64| if padded { format!("{number:02}") } else { number.to_string() };
        let hour = self.second_of_day / 3600;
        let half_day_hour = (hour + 11) % 12 + 1;
        let minute = self.second_of_day / 60 % 60;
        let second = self.second_of_day % 60;
        Some(match directive {
            'Y' => self.year.to_string(),
            'y' => two(self.year % 100),
            'm' => two(self.month),
            'd' => two(self.day),
            'e' if padded => format!("{:2}", self.day),
            'e' => self.day.to_string(),
            'j' if padded => format!("{:03}", self.day_of_year),
            'j' => self.day_of_year.to_string(),
            'H' => two(hour),
            'I' => two(half_day_hour),
            'M' => two(minute),
            'S' => two(second),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'A' => self.day_name().to_owned(),
            'a' => self.day_name()[..3].to_owned(),
            'B' => self.month_name().to_owned(),
            'b' | 'h' => self.month_name()[..3].to_owned(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }

    fn day_name(&self) -> &'static str {
        DAYS[self.weekday as usize]
    }

    fn month_name(&self) -> &'static str {
        MONTHS[self.month as usize - 1]
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::format;

    /// Expected values are Python's `datetime.fromtimestamp(seconds, UTC).strftime(format)`.
    #[test]
    fn dates_are_those_of_python() {
        let all = "%d %b %Y, %A %a %B %H:%M:%S %I %p %j %y %-d %-m %e %% %F %T";
        let cases = [
            (0, "01 Jan 1970, Thursday Thu January 00:00:00 12 AM 001 70 1 1  1 % 1970-01-01 00:00:00"),
            (951_868_799, "29 Feb 2000, Tuesday Tue February 23:59:59 11 PM 060 00 29 2 29 % 2000-02-29 23:59:59"),
            (1_764_417_600, "29 Nov 2025, Saturday Sat November 12:00:00 12 PM 333 25 29 11 29 % 2025-11-29 12:00:00"),
            (4_107_542_400, "01 Mar 2100, Monday Mon March 00:00:00 12 AM 060 00 1 3  1 % 2100-03-01 00:00:00"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(format(seconds, all).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn unknown_directives_are_said() {
        assert_eq!(
            format(0, "%Q").err().as_deref(),
            Some("strftime_now: \"%Q\" has a directive that is not understood: %Q")
        );
        assert!(format(0, "100%").is_err());
    }
}
