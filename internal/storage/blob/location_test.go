package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// clearAWS unsets the environment variables that a bucket's URL falls back to.
func clearAWS(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	} {
		t.Setenv(name, "")
	}
	none := t.TempDir() + "/none"
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// TestLocation: the address of the objects for a bucket's URL.
func TestLocation(t *testing.T) {
	for _, c := range []struct {
		where string
		env   map[string]string
		url   string
	}{
		{"s3://b?region=eu-west-1", nil, "https://b.s3.eu-west-1.amazonaws.com"},
		{"s3://b/?region=cn-north-1", nil, "https://b.s3.cn-north-1.amazonaws.com.cn"},
		{"s3://a.b?region=eu-west-1", nil, "https://s3.eu-west-1.amazonaws.com/a.b"},
		{"s3://b?region=r&endpoint=https://minio:9000&s3ForcePathStyle=true", nil, "https://minio:9000/b"},
		{"s3://b?region=r&endpoint=https://minio:9000/&use_path_style=true", nil, "https://minio:9000/b"},
		{"s3://b?region=r&endpoint=https://minio:9000", nil, "https://b.minio:9000"},
		{"s3://b?region=r&endpoint=http://10.0.0.1:9000/s3", nil, "http://10.0.0.1:9000/s3/b"},
		{"s3://b", map[string]string{"AWS_REGION": "eu-west-1"}, "https://b.s3.eu-west-1.amazonaws.com"},
		{"s3://b", map[string]string{"AWS_DEFAULT_REGION": "eu-west-1"}, "https://b.s3.eu-west-1.amazonaws.com"},
		{"s3://b?region=r", map[string]string{"AWS_ENDPOINT_URL_S3": "http://h", "AWS_ENDPOINT_URL": "x://"}, "http://b.h"},
		{"s3://b?region=r", map[string]string{"AWS_ENDPOINT_URL": "http://g"}, "http://b.g"},
	} {
		clearAWS(t)
		for name, value := range c.env {
			t.Setenv(name, value)
		}
		b, err := openBucket(c.where)
		if err != nil {
			t.Errorf("%s: %v", c.where, err)
			continue
		}
		if got := b.s3.endpoint.String(); got != c.url {
			t.Errorf("%s: got %s, want %s", c.where, got, c.url)
		}
	}
}

// TestLocationRefused: a URL with missing or unknown parts is an error that names the problem.
func TestLocationRefused(t *testing.T) {
	clearAWS(t)
	for where, want := range map[string]string{
		"s3://b":                    "region",
		"s3://?region=r":            "s3://bucket",
		"s3://b/path?region=r":      "s3://bucket",
		"file:///var/files":         "neither a directory nor the URL of a bucket",
		"gs://b":                    "neither a directory nor the URL of a bucket",
		"s3://b?region=r&awssdk=v1": `unknown parameter "awssdk"`,
		"s3://b?region=r&s3ForcePathStyle=perhaps":   "expected true or false",
		"s3://b?region=r&endpoint=minio:9000":        "https://minio:9000",
		"s3://b?region=r&endpoint=https://u:pw@host": "may have only scheme, host and path",
	} {
		_, err := Open(t.Context(), where)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: got %v, want that it says %q", where, err, want)
		}
	}
}

// TestSigned: requests are signed, including the body unless TLS protects it, name the session,
// and specify the encryption of objects.
func TestSigned(t *testing.T) {
	clearAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	t.Setenv("AWS_SESSION_TOKEN", "session")
	sum := sha256.Sum256([]byte("text"))
	for query, digest := range map[string]string{
		"endpoint=http://h":                  hex.EncodeToString(sum[:]),
		"endpoint=https://h":                 "UNSIGNED-PAYLOAD",
		"endpoint=https://h&anonymous=true":  "UNSIGNED-PAYLOAD",
		"endpoint=http://h&anonymous=false":  hex.EncodeToString(sum[:]),
		"endpoint=https://h&anonymous=false": "UNSIGNED-PAYLOAD",
	} {
		b, err := openBucket("s3://b?region=eu-west-1&" + query)
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.s3.signed(t.Context(), s3Request{method: http.MethodPut, name: "acme/a b", body: []byte("text")})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Header.Get("X-Amz-Content-Sha256"); got != digest {
			t.Errorf("%s: got digest %s, want %s", query, got, digest)
		}
		if got, want := r.URL.EscapedPath(), "/acme/a%20b"; got != want {
			t.Errorf("%s: got path %s, want %s", query, got, want)
		}
		got := r.Header.Get("Authorization")
		day, _, _ := strings.Cut(r.Header.Get("X-Amz-Date"), "T")
		want := "AWS4-HMAC-SHA256 Credential=" + testKey + "/" + day + "/eu-west-1/s3/aws4_request, " +
			"SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature="
		if strings.Contains(query, "anonymous=true") {
			if got != "" {
				t.Errorf("%s: got authorization %q, want none", query, got)
			}
			continue
		}
		if !strings.HasPrefix(got, want) || r.Header.Get("X-Amz-Security-Token") != "session" {
			t.Errorf("%s: got authorization %q, want %q...", query, got, want)
		}
	}
}

// TestEncryption: objects are encrypted as the URL specifies.
func TestEncryption(t *testing.T) {
	clearAWS(t)
	b, err := openBucket("s3://b?region=r&ssetype=aws:kms&kmskeyid=key")
	if err != nil {
		t.Fatal(err)
	}
	up, err := b.create(t.Context(), "acme/file", false)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Content-Type":                                {"application/octet-stream"},
		"X-Amz-Server-Side-Encryption":                {"aws:kms"},
		"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": {"key"},
	}
	if got := up.(*objectUpload).header; !maps.EqualFunc(got, want, func(a, b []string) bool { return a[0] == b[0] }) {
		t.Errorf("got header %v, want %v", got, want)
	}
}
