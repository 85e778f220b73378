//! HTTP and HTTPS probes. Certificates are not verified, as by a kubelet.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub async fn get(action: &HTTPGetAction, host: &str, port: u16) -> Result<u16, String> {
    let stream = TcpStream::connect((host, port)).await.map_err(words)?;
    let path = action.path.as_deref().unwrap_or_default().trim_start_matches('/');
    let mut request = Request::get(format!("/{path}"));
    for header in action.http_headers.iter().flatten() {
        request = request.header(&header.name, &header.value);
    }
    let mut request = request.body(Empty::<Bytes>::new()).map_err(words)?;
    let headers = request.headers_mut();
    for (name, value) in [
        (HOST, format!("{host}:{port}")),
        (
            USER_AGENT,
            concat!("kube-probe/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        (ACCEPT, "*/*".to_owned()),
    ] {
        if !headers.contains_key(&name) {
            headers.insert(name, value.parse().map_err(words)?);
        }
    }
    if action.scheme.as_deref() == Some("HTTPS") {
        let name = ServerName::try_from(host.to_owned()).map_err(words)?;
        let connector = TlsConnector::from(Arc::new(trusting().map_err(words)?));
        let stream = connector.connect(name, stream).await.map_err(words)?;
        return ask(stream, request).await;
    }
    ask(stream, request).await
}

async fn ask<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<u16, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(words)?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = &mut answer => answer,
        // A server may close the connection with its answer; other errors are in the answer.
        _ = connection => answer.await,
    };
    Ok(answer.map_err(words)?.status().as_u16())
}

fn words(error: impl std::error::Error) -> String {
    use std::fmt::Write;
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(because) = cause {
        let _ = write!(words, ": {because}");
        cause = because.source();
    }
    words
}

fn trusting() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Anyone(provider.signature_verification_algorithms));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(verifier);
    Ok(config.with_no_client_auth())
}

/// Accepts any certificate.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        String::from_utf8(request).unwrap()
    }

    /// Asks a server that answers once, and gives what came of it and what the server was asked.
    async fn asked(is_secret: bool, scheme: &str, words: &'static str) -> (Result<u16, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            if !is_secret {
                return answer(stream, words).await;
            }
            // Nobody knows who has signed this, and it is for another host.
            let made = rcgen::generate_simple_self_signed(["elsewhere".to_owned()]).unwrap();
            let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
            let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key)
                .unwrap();
            let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
            answer(stream, words).await
        });
        let action = json!({"path": "/healthz?a=b", "port": 1, "scheme": scheme,
            "httpHeaders": [{"name": "X-Own", "value": "1"}]});
        let action = serde_json::from_value(action).unwrap();
        let code = get(&action, "127.0.0.1", port).await;
        (code, serving.await.unwrap())
    }

    #[tokio::test]
    async fn a_server_is_asked_as_it_wants_to_be_and_need_not_prove_who_it_is() {
        for (is_secret, scheme) in [(false, "HTTP"), (true, "HTTPS")] {
            let (code, request) = asked(is_secret, scheme, "204 Nothing").await;
            assert_eq!(code, Ok(204), "{scheme}");
            let request = request.to_lowercase();
            assert!(request.starts_with("get /healthz?a=b http/1.1\r\n"), "{request}");
            assert!(
                request.contains("x-own: 1\r\n") && request.contains("host: 127.0.0.1:"),
                "{request}"
            );
        }
        assert_eq!(asked(true, "HTTPS", "503 Busy").await.0, Ok(503));
    }

    #[tokio::test]
    async fn a_server_that_speaks_something_else_has_not_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 Fine\r\n\r\n").await.unwrap();
            stream
        });
        let action = serde_json::from_value(json!({"port": 1, "scheme": "HTTPS"})).unwrap();
        assert!(get(&action, "127.0.0.1", port).await.is_err());
        serving.await.unwrap();
    }
}
