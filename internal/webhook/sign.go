package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Secret signs deliveries. It is never printed.
type Secret struct{ key []byte }

// SecretPrefix is the prefix of every secret's base64 text.
const SecretPrefix = "whsec_"

// The length of a secret in bytes, according to Standard Webhooks.
const (
	secretLeast = 24
	secretMost  = 64
)

// ErrSecret is the error for an invalid secret.
var ErrSecret = errors.New("webhook: a secret is whsec_ and 24 to 64 bytes in base64")

// ParseSecret parses whsec_ and base64.
func ParseSecret(text string) (Secret, error) {
	rest, ok := strings.CutPrefix(text, SecretPrefix)
	key, err := base64.StdEncoding.DecodeString(rest)
	if !ok || err != nil || len(key) < secretLeast || len(key) > secretMost {
		return Secret{}, ErrSecret
	}
	return Secret{key}, nil
}

// String returns a placeholder.
func (s Secret) String() string { return "[secret]" }

// GoString is String, so that %#v does not print the key either.
func (s Secret) GoString() string { return s.String() }

// signature returns the Standard Webhooks signature, version 1.
func (s Secret) signature(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// sign sets the three headers by which a receiver authenticates us, with a signature for every
// secret. During a rotation, receivers may know either.
func sign(h http.Header, secrets []Secret, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	list := make([]string, len(secrets))
	for i, s := range secrets {
		list[i] = s.signature(id, timestamp, body)
	}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", timestamp)
	h.Set("Webhook-Signature", strings.Join(list, " "))
}
