//! Stop strings in streamed text.

/// What became final with a piece of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Text to send on.
    pub text: String,
    /// The stop string that ended the output, as an index into the list given.
    pub stop: Option<usize>,
}

/// Finds the stop string that is complete first, also across pieces, and holds back text that may be its start. Of
/// strings that are complete at the same place the longest counts. Pieces of text and their borders make no difference.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    included: bool,
    /// The longest end of the text that a stop string starts with.
    held: String,
    done: bool,
}

impl StopMatcher {
    /// `included`: the stop string is part of the text. An empty stop string never matches.
    pub fn new(stops: &[String], included: bool) -> Self {
        Self { stops: stops.to_vec(), included, held: String::new(), done: false }
    }

    /// Takes the next piece. After a stop string nothing comes any more.
    pub fn push(&mut self, text: &str) -> Stopped {
        if self.done || text.is_empty() {
            return Stopped::default();
        }
        if self.stops.is_empty() {
            return Stopped { text: text.to_owned(), stop: None };
        }
        let mut text = std::mem::take(&mut self.held) + text;
        if let Some((index, start, end)) = self.first_match(&text) {
            self.done = true;
            text.truncate(if self.included { end } else { start });
            return Stopped { text, stop: Some(index) };
        }
        let possible = self.possible_start(&text);
        self.held = text.split_off(text.len() - possible);
        Stopped { text, stop: None }
    }

    /// The text still held, when the output ends for another reason.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Index, start and end of the match that ends first; of those the longest.
    fn first_match(&self, text: &str) -> Option<(usize, usize, usize)> {
        let found = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty()).filter_map(|(index, stop)| {
            let start = text.find(stop.as_str())?;
            Some((index, start, start + stop.len()))
        });
        found.min_by_key(|(_, start, end)| (*end, *start))
    }

    /// Bytes of the longest end of `text` that is the start of a stop string. It is not a whole one: that would have
    /// matched.
    fn possible_start(&self, text: &str) -> usize {
        let longest = |stop: &String| {
            let most = stop.len().saturating_sub(1).min(text.len());
            (1..=most).rev().find(|length| text.as_bytes().ends_with(&stop.as_bytes()[..*length]))
        };
        self.stops.iter().filter_map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::StopMatcher;

    fn stops(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// The whole text that comes out, and the stop string.
    fn run(matcher: &mut StopMatcher, pieces: &[&str]) -> (String, Option<usize>) {
        let mut text = String::new();
        for piece in pieces {
            let stopped = matcher.push(piece);
            text += &stopped.text;
            if stopped.stop.is_some() {
                return (text, stopped.stop);
            }
        }
        (text + &matcher.finish(), None)
    }

    #[test]
    fn a_stop_string_is_found_across_pieces() {
        let mut matcher = StopMatcher::new(&stops(&["\n\nUser:"]), false);
        assert_eq!(matcher.push("Hello\n").text, "Hello");
        assert_eq!(matcher.push("\nUs").text, "");
        let last = matcher.push("er: next");
        assert_eq!((last.text.as_str(), last.stop), ("", Some(0)));
        assert_eq!(matcher.push("more").text, "");
    }

    #[test]
    fn a_false_start_is_released() {
        let mut matcher = StopMatcher::new(&stops(&["abac"]), false);
        assert_eq!(run(&mut matcher, &["ab", "ab", "a", "x"]), ("ababax".to_owned(), None));
        let mut matcher = StopMatcher::new(&stops(&["abac"]), false);
        assert_eq!(run(&mut matcher, &["ab", "ab", "a", "c", "x"]), ("ab".to_owned(), Some(0)));
    }

    #[test]
    fn the_string_is_included_on_request() {
        let mut matcher = StopMatcher::new(&stops(&["STOP", ""]), true);
        assert_eq!(run(&mut matcher, &["do S", "TOP now"]), ("do STOP".to_owned(), Some(0)));
    }

    #[test]
    fn the_first_complete_string_counts_and_then_the_longest() {
        let mut matcher = StopMatcher::new(&stops(&["bcde", "cd", "bcd"]), false);
        assert_eq!(run(&mut matcher, &["abcdef"]), ("a".to_owned(), Some(2)));
    }

    #[test]
    fn what_is_held_at_the_end_is_returned() {
        let mut matcher = StopMatcher::new(&stops(&["é!"]), false);
        assert_eq!(run(&mut matcher, &["caf", "é"]), ("café".to_owned(), None));
    }

    proptest! {
        /// The definition: the earliest prefix of the text that ends with a stop string.
        #[test]
        fn any_split_gives_the_same(text in "[abé]{0,24}", texts in prop::collection::vec("[abé]{1,4}", 1..4),
                                    borders in prop::collection::vec(0_usize..48, 0..6), included: bool) {
            let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
            let expected = ends.into_iter().find_map(|end| {
                let matching = texts.iter().enumerate().filter(|(_, stop)| text[..end].ends_with(stop.as_str()));
                let (index, stop) = matching.rev().max_by_key(|(_, stop)| stop.len())?;
                Some((text[..if included { end } else { end - stop.len() }].to_owned(), Some(index)))
            });
            let expected = expected.unwrap_or((text.clone(), None));
            let mut borders: Vec<usize> = borders.into_iter().filter(|at| text.is_char_boundary(*at)).collect();
            borders.extend([0, text.len()]);
            borders.sort();
            let pieces: Vec<&str> = borders.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(run(&mut StopMatcher::new(&texts, included), &pieces), expected);
        }
    }
}
