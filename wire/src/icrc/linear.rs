//! The CRC as the linear map that it is: what a field adds to it, and how a difference travels.
//!
//! A CRC register is a polynomial over GF(2) of degree below 32, its bit 31 the coefficient of x^0. Feeding a
//! byte multiplies it by x^8 modulo the generator. The generator has a constant term, so x has an inverse and
//! the register can be run backwards.

/// The generator of CRC-32, reflected.
const GENERATOR: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

const fn times_x(register: u32) -> u32 {
    (register >> 1) ^ (if register & 1 == 1 { GENERATOR } else { 0 })
}

const fn divided_by_x(register: u32) -> u32 {
    if register & ONE != 0 {
        ((register ^ GENERATOR) << 1) | 1
    } else {
        register << 1
    }
}

const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a & ONE != 0 {
            product ^= b;
        }
        a <<= 1;
        b = times_x(b);
    }
    product
}

/// The powers of x^(-8 * step), from 0 to 255.
const fn inverse_powers(step: usize) -> [u32; 256] {
    let mut factor = ONE;
    let mut bit = 0;
    while bit < 8 * step {
        factor = divided_by_x(factor);
        bit += 1;
    }
    let mut powers = [ONE; 256];
    let mut i = 1;
    while i < 256 {
        powers[i] = multiply(powers[i - 1], factor);
        i += 1;
    }
    powers
}

static BACK_BY_1: [u32; 256] = inverse_powers(1);
static BACK_BY_256: [u32; 256] = inverse_powers(256);

/// Where a difference in the CRC comes from: what it was `count` bytes before, as if every byte since was equal.
/// `count` is below 65,536.
pub(super) fn carry_back(difference: u32, count: usize) -> u32 {
    debug_assert!(count < 1 << 16);
    multiply(
        multiply(difference, BACK_BY_1[count & 0xff]),
        BACK_BY_256[(count >> 8) & 0xff],
    )
}

/// What each value of a byte adds to the CRC of bytes of which `after` follow it.
const fn byte_table(after: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let mut value = 1;
    while value < 256 {
        if value & (value - 1) == 0 {
            let mut register = value as u32;
            let mut bit = 0;
            while bit < 8 * (after + 1) {
                register = times_x(register);
                bit += 1;
            }
            table[value] = register;
        } else {
            let top = 1 << value.ilog2();
            table[value] = table[top] ^ table[value ^ top];
        }
        value += 1;
    }
    table
}

/// What each value of a byte adds to the CRC of bytes of which 0 to 7 follow it.
static BYTES: [[u32; 256]; 8] = [
    byte_table(0),
    byte_table(1),
    byte_table(2),
    byte_table(3),
    byte_table(4),
    byte_table(5),
    byte_table(6),
    byte_table(7),
];

/// What a little-endian word adds of which `after` bytes follow (0 or 4).
#[inline]
fn word_adds(word: u32, after: usize) -> u32 {
    let [b0, b1, b2, b3] = word.to_le_bytes().map(usize::from);
    BYTES[after + 3][b0] ^ BYTES[after + 2][b1] ^ BYTES[after + 1][b2] ^ BYTES[after][b3]
}

/// The CRC after `bytes`, when it was `crc` before them. For a few bytes it is faster than what is fastest for many.
#[inline]
pub(super) fn update_few(crc: u32, bytes: &[u8]) -> u32 {
    let mut register = !crc;
    let (pairs, rest) = bytes.as_chunks::<8>();
    for &[b0, b1, b2, b3, b4, b5, b6, b7] in pairs {
        let near = u32::from_le_bytes([b0, b1, b2, b3]) ^ register;
        let far = u32::from_le_bytes([b4, b5, b6, b7]);
        register = word_adds(near, 4) ^ word_adds(far, 0);
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        register = word_adds(u32::from_le_bytes(*word) ^ register, 0);
    }
    for byte in rest {
        register = register >> 8 ^ BYTES[0][usize::from(register as u8 ^ byte)];
    }
    !register
}

/// Tables of a 16-bit field at byte `offset` of headers of `len` bytes.
struct Field([[u32; 256]; 2]);

impl Field {
    const fn new(offset: usize, len: usize) -> Self {
        Self([byte_table(len - offset - 1), byte_table(len - offset - 2)])
    }

    fn adds(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.0[0][usize::from(high)] ^ self.0[1][usize::from(low)]
    }
}

const IPV4_UDP_LEN: usize = 28;
static IPV4_TOTAL_LENGTH: Field = Field::new(2, IPV4_UDP_LEN);
static IPV4_IDENTIFICATION: Field = Field::new(4, IPV4_UDP_LEN);
static IPV4_UDP_LENGTH: Field = Field::new(24, IPV4_UDP_LEN);
const IPV6_UDP_LEN: usize = 48;
static IPV6_PAYLOAD_LENGTH: Field = Field::new(4, IPV6_UDP_LEN);
static IPV6_UDP_LENGTH: Field = Field::new(44, IPV6_UDP_LEN);

/// What these fields add to the CRC after the IPv4 and UDP headers.
pub(super) fn ipv4_fields(total_length: u16, identification: u16, udp_length: u16) -> u32 {
    IPV4_TOTAL_LENGTH.adds(total_length)
        ^ IPV4_IDENTIFICATION.adds(identification)
        ^ IPV4_UDP_LENGTH.adds(udp_length)
}

/// What the length, which IPv6 and UDP both have, adds to the CRC after the two headers.
pub(super) fn ipv6_fields(udp_length: u16) -> u32 {
    IPV6_PAYLOAD_LENGTH.adds(udp_length) ^ IPV6_UDP_LENGTH.adds(udp_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_and_its_inverse_cancel() {
        for register in [1, ONE, GENERATOR, 0xdead_beef, u32::MAX] {
            assert_eq!(divided_by_x(times_x(register)), register);
            assert_eq!(times_x(divided_by_x(register)), register);
            assert_eq!(multiply(register, ONE), register);
        }
    }

    #[test]
    fn carrying_back_undoes_the_feeding_of_bytes() {
        for count in [0, 1, 255, 256, 257, 4096, 65_535] {
            let mut register = 0x1234_5678;
            for _ in 0..8 * count {
                register = times_x(register);
            }
            assert_eq!(carry_back(register, count), 0x1234_5678, "{count}");
        }
    }
}
