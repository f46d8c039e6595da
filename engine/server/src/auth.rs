//! API keys.

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::error::ApiError;

/// Digests of the keys that open the server; none means that it is open. Digests have one length, so that the time
/// of a comparison tells nothing of a key, not even how long it is.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    /// 401 unless the request carries one of the keys as `Authorization: Bearer KEY`.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let Some(given) = bearer(headers) else {
            return Err(refused("this server asks for an API key; send it as `Authorization: Bearer KEY`"));
        };
        let given = digest(given);
        let known = self.0.iter().fold(Choice::from(0), |known, key| known | key.ct_eq(&given));
        if bool::from(known) { Ok(()) } else { Err(refused("the API key is not one that this server knows")) }
    }
}

fn refused(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key")
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// The credentials of a bearer authorization; the scheme's name is case-insensitive.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked(6)?;
    let key = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.first() == Some(&b' ')).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(keys: &[&str], value: Option<&str>) -> Option<StatusCode> {
        let keys = Keys::new(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        keys.check(&headers).err().map(|error| error.status)
    }

    #[test]
    fn one_of_the_keys_opens() {
        let refused = Some(StatusCode::UNAUTHORIZED);
        assert_eq!(status(&[], None), None);
        assert_eq!(status(&["a", "bcd"], Some("Bearer bcd")), None);
        assert_eq!(status(&["a", "bcd"], Some("bearer  a ")), None);
        for wrong in ["Bearer b", "Bearer abcd", "Bearer", "Bearer ", "Basic a", "a", "Bearera", "Bearer bcd bcd"] {
            assert_eq!(status(&["a", "bcd"], Some(wrong)), refused, "{wrong}");
        }
        assert_eq!(status(&["a"], None), refused);
    }
}
