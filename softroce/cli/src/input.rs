//! Files of text that a user names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The longest file that is read, bytes: far above any file of rules, script or plan.
const BYTES_MAX: u64 = 1 << 24;

/// The text of a file. What never ends (`/dev/zero`) is read up to a bound only.
///
/// # Errors
/// It cannot be read, is longer than [`BYTES_MAX`], or is not text.
pub fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if bytes.len() as u64 > BYTES_MAX {
        return Err(wrong(format!("it has more than {BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        wrong(format!("line {line} is no text in UTF-8 (byte {at} of the file)"))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::text;

    #[test]
    fn what_never_ends_or_is_no_text_is_refused() {
        let endless = text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(endless, "it has more than 16777216 bytes");
        let path = std::env::temp_dir().join(format!("softroce-input-{}", std::process::id()));
        std::fs::write(&path, b"one\ntwo\xff\n").unwrap();
        let garbage = text(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(garbage, "line 2 is no text in UTF-8 (byte 7 of the file)");
    }
}
