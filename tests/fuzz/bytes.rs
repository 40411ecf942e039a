/// What a fuzzer has made up, taken from the front; zeros behind its end.
pub struct Bytes<'a>(&'a [u8]);

#[allow(dead_code)] // Each harness uses a part.
impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Bytes(bytes)
    }

    pub fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub fn many<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next())
    }

    /// Big endian.
    pub fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.many())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
