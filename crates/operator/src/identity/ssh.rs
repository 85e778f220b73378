//! A key for SSH, in the format of OpenSSH: Ed25519, without a passphrase.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};

const KIND: &[u8] = b"ssh-ed25519";
const SEED: usize = 32;
/// The private part is padded to a multiple of this.
const BLOCK: usize = 8;
const LINE: usize = 70;

/// Makes a private and a public key, in the file formats of OpenSSH.
pub(super) fn make() -> Result<(String, String), ring::error::Unspecified> {
    let random = SystemRandom::new();
    let (mut seed, mut check) = ([0; SEED], [0; 4]);
    random.fill(&mut seed)?;
    random.fill(&mut check)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| ring::error::Unspecified)?;
    let public = pair.public_key().as_ref();

    let mut blob = Vec::new();
    append_string(&mut blob, KIND);
    append_string(&mut blob, public);

    let mut private = Vec::new();
    // Twice: the format detects a wrong passphrase by this.
    private.extend_from_slice(&check);
    private.extend_from_slice(&check);
    append_string(&mut private, KIND);
    append_string(&mut private, public);
    append_string(&mut private, &[&seed, public].concat());
    append_string(&mut private, b"");
    let missing = private.len().next_multiple_of(BLOCK) - private.len();
    private.extend((1..).take(missing));

    let mut file = b"openssh-key-v1\0".to_vec();
    // No cipher, no key derivation, no options.
    for nothing in [&b"none"[..], b"none", b""] {
        append_string(&mut file, nothing);
    }
    file.extend_from_slice(&1_u32.to_be_bytes());
    append_string(&mut file, &blob);
    append_string(&mut file, &private);
    Ok((pem(&file), format!("ssh-ed25519 {}\n", STANDARD.encode(&blob))))
}

/// Appends the length of some bytes, and the bytes.
fn append_string(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(bytes);
}

fn pem(bytes: &[u8]) -> String {
    let mut text = "-----BEGIN OPENSSH PRIVATE KEY-----\n".to_owned();
    let encoded = STANDARD.encode(bytes);
    for (i, c) in encoded.chars().enumerate() {
        if i > 0 && i % LINE == 0 {
            text.push('\n');
        }
        text.push(c);
    }
    text.push_str("\n-----END OPENSSH PRIVATE KEY-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(private: &str) -> Vec<u8> {
        let lines = private.lines().filter(|line| !line.starts_with('-'));
        STANDARD.decode(lines.collect::<String>()).unwrap()
    }

    #[test]
    fn the_private_key_has_the_public_one_in_it() {
        let (private, public) = make().unwrap();
        assert!(private.lines().all(|line| line.len() <= LINE));
        let file = decode(&private);
        let blob = STANDARD
            .decode(public.split_whitespace().nth(1).unwrap())
            .unwrap();
        // The header, the number of keys, and the length of the first.
        let begin = 15 + (4 + 4) * 2 + 4 + 4 + 4;
        assert_eq!(file[begin..begin + blob.len()], blob);
        let rest = &file[begin + blob.len() + 4..];
        assert_eq!((rest.len() % BLOCK, &rest[..4]), (0, &rest[4..8]));
        let seed = rest.len() - 2 * SEED - 4;
        let at = rest.windows(KIND.len()).position(|bytes| bytes == KIND).unwrap();
        let at = at + KIND.len() + 4 + SEED + 4;
        assert!(at <= seed);
        let pair = Ed25519KeyPair::from_seed_unchecked(&rest[at..at + SEED]).unwrap();
        assert_eq!(pair.public_key().as_ref(), &blob[blob.len() - SEED..]);
        assert_ne!(make().unwrap().1, public);
    }

    /// OpenSSH itself finds the public key in the private one.
    #[test]
    fn openssh_reads_it() {
        let (private, public) = make().unwrap();
        let directory = std::env::temp_dir().join(format!("trainyard-ssh-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("id");
        std::fs::write(&path, private).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        let read = std::process::Command::new("ssh-keygen")
            .arg("-yf")
            .arg(&path)
            .output();
        std::fs::remove_dir_all(&directory).unwrap();
        let read =
            read.expect("ssh-keygen can't be run: install openssh-client, or run hack/bootstrap build");
        assert!(read.status.success(), "{read:?}");
        assert_eq!(
            String::from_utf8_lossy(&read.stdout).trim(),
            public.trim(),
            "{read:?}"
        );
    }
}
