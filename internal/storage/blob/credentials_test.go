package blob

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/llmguard/llmguard/internal/redistest"
)

const sharedFile = `[default]
aws_access_key_id = DEFAULTKEY
aws_secret_access_key = default secret

[other]
aws_access_key_id = OTHERKEY
aws_secret_access_key = other secret
`

// shareFile writes the shared credentials file.
func shareFile(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path)
}

func fetch(t *testing.T, c *credentials.Credentials) (credentials.Value, error) {
	t.Helper()
	return c.GetWithContext(&credentials.CredContext{Client: &http.Client{Timeout: redistest.Bound}, Context: t.Context()})
}

// TestCredentials: the environment takes precedence over the shared file, and a profile in the
// URL over both.
func TestCredentials(t *testing.T) {
	env := map[string]string{"AWS_ACCESS_KEY_ID": "ENVKEY", "AWS_SECRET_ACCESS_KEY": "s"}
	for _, c := range []struct {
		name    string
		env     map[string]string
		profile string
		want    string
	}{
		{"environment", env, "", "ENVKEY"},
		{"half of a pair in the environment", map[string]string{"AWS_ACCESS_KEY_ID": "ENVKEY"}, "", "DEFAULTKEY"},
		{"shared file", nil, "", "DEFAULTKEY"},
		{"profile in the environment", map[string]string{"AWS_PROFILE": "other"}, "", "OTHERKEY"},
		{"profile of the URL", env, "other", "OTHERKEY"},
	} {
		clearAWS(t)
		shareFile(t, sharedFile)
		for name, value := range c.env {
			t.Setenv(name, value)
		}
		v, err := fetch(t, newCredentials(c.profile))
		if v.AccessKeyID != c.want || err != nil {
			t.Errorf("%s: got %s and %v, want %s", c.name, v.AccessKeyID, err, c.want)
		}
	}
}

// TestCredentialsOfContainer: the credentials of a container's role are fetched again when they
// expire.
func TestCredentialsOfContainer(t *testing.T) {
	clearAWS(t)
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "pod token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		n++
		fmt.Fprintf(w, `{"AccessKeyId":"KEY%d","SecretAccessKey":"s","Token":"t","Expiration":%q}`,
			n, time.Now().Add(time.Duration(2*n-3)*time.Hour).UTC().Format(time.RFC3339)) // the first ones have expired
	}))
	t.Cleanup(srv.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("pod token"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", srv.URL)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)
	c := newCredentials("")
	for _, want := range []string{"KEY1", "KEY2", "KEY2"} {
		v, err := fetch(t, c)
		if v.AccessKeyID != want || v.SessionToken != "t" || err != nil {
			t.Errorf("got %s with session %q and %v, want %s", v.AccessKeyID, v.SessionToken, err, want)
		}
	}
}

// TestNoCredentials: without credentials no request is sent, and the error says why without
// quoting a file.
func TestNoCredentials(t *testing.T) {
	requests := 0
	s := fakeS3(t, func(http.ResponseWriter, *http.Request) { requests++ })
	for _, c := range []struct{ profile, file, want string }{
		{"missing", sharedFile, "missing"},
		{"", "[default]\naws_access_key_id = K\n", "partial"},
		{"", "[default]\naws_secret_access_key the-secret-key\n", "no = sign"},
	} {
		clearAWS(t)
		shareFile(t, c.file)
		t.Setenv("AWS_PROFILE", c.profile)
		client(s).keys = newCredentials("")
		_, err := readStore(t.Context(), s, "acme/file")
		if !errors.Is(err, errNoCredentials) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want that there are none, and %q", err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "the-secret-key") {
			t.Errorf("%q shows a line of the file", err)
		}
	}
	if requests != 0 {
		t.Errorf("got %d requests, want none", requests)
	}
}
