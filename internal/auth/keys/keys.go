// Package keys defines the text format of an API key and the hash under which it is stored. It
// does not know who owns a key or whether it is still valid.
//
// A key reads lg_live_<30 base62 characters><6 characters of checksum>. The prefix lets secret
// scanners find it, the underscores let a double click select all of it, the 30 random
// characters are 178 bits, and the checksum rejects a mistyped key before any store is asked.
package keys

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Class is what a key may be used for; it is part of the key's text.
type Class string

// The classes. A key of one class is never accepted in place of another.
const (
	Live  Class = "live"  // calls models, spends money
	Admin Class = "admin" // calls the admin API only, never a model
	Test  Class = "test"  // calls models, for use outside production
	Run   Class = "run"   // calls models within the budget of a run
)

const (
	scheme      = "lg_"
	alphabet    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomLen   = 30
	checksumLen = 6 // 62^6 > 2^32
)

// The ways in which a text is not a key. The errors do not quote the text.
var (
	ErrFormat = errors.New("not an llmguard key: expected lg_live_, lg_test_, lg_run_ or lg_admin_ and 36 letters " +
		"and digits, without quotes or spaces")
	ErrChecksum = errors.New("the key's checksum does not match: a character is missing or mistyped")
)

// New returns a new key of the class from the system's secure random source. It panics on a
// class other than Live, Admin, Test and Run, which is a programming error.
func New(class Class) string {
	if !class.known() {
		panic(fmt.Sprintf("keys: no such class %q", string(class)))
	}
	body := scheme + string(class) + "_" + random(randomLen)
	sum := checksum(body)
	return body + string(sum[:])
}

// NewRun returns a new key of class Run. Its last random characters are a code of the others under the pepper, see
// Vouched; 131 random bits remain.
func NewRun(p Pepper) string {
	body := scheme + string(Run) + "_" + random(randomLen-voucherLen)
	body += voucher(p, body)
	sum := checksum(body)
	return body + string(sum[:])
}

// Vouched reports whether a key of class Run was created under the pepper. It only spares the store wrong keys: without
// a pepper, whoever knows this code can create such texts.
func Vouched(p Pepper, text string) bool {
	end := len(text) - checksumLen
	return end > voucherLen && hmac.Equal([]byte(voucher(p, text[:end-voucherLen])), []byte(text[end-voucherLen:end]))
}

const voucherLen = 8

func voucher(p Pepper, body string) string {
	sum := sha256.Sum256([]byte("voucher " + Hash(p, body)))
	out := make([]byte, voucherLen)
	for i := range out {
		out[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(out)
}

// Check verifies the form and the checksum of a key and returns its class. The error is
// ErrFormat or ErrChecksum. A key that passes may still be unknown.
func Check(text string) (Class, error) {
	rest, ok := strings.CutPrefix(text, scheme)
	if !ok {
		return "", ErrFormat
	}
	name, secret, ok := strings.Cut(rest, "_")
	class := Class(name)
	if !ok || !class.known() || len(secret) != randomLen+checksumLen {
		return "", ErrFormat
	}
	for i := range len(secret) {
		if strings.IndexByte(alphabet, secret[i]) < 0 {
			return "", ErrFormat
		}
	}
	body := text[:len(text)-checksumLen]
	if sum := checksum(body); string(sum[:]) != text[len(body):] {
		return "", ErrChecksum
	}
	return class, nil
}

// Pepper is a secret, kept outside the store, that key hashes depend on. ID is written in front
// of each hash, so that peppers can be rotated. The zero value means no pepper.
type Pepper struct {
	ID     string
	Secret string
}

// Hash returns the form in which a key is stored and looked up:
// "<pepper id>:<hex HMAC-SHA256>", or "sha256:<hex>" for the zero Pepper.
// A plain fast hash is enough because keys hold 178 random bits.
func Hash(p Pepper, text string) string { return string(AppendHash(nil, p, text)) }

// AppendHash appends what Hash returns to dst.
func AppendHash(dst []byte, p Pepper, text string) []byte {
	if p.ID == "" {
		var buf [64]byte // large enough for a key, so that it is not allocated on the heap
		sum := sha256.Sum256(append(buf[:0], text...))
		return hex.AppendEncode(append(dst, "sha256:"...), sum[:])
	}
	mac := hmac.New(sha256.New, []byte(p.Secret))
	mac.Write([]byte(text))
	return hex.AppendEncode(append(append(dst, p.ID...), ':'), mac.Sum(nil))
}

// EqualAny reports whether a stored hash is one of those given, in a time that depends only on
// their number.
func EqualAny(hashes []string, stored string) bool {
	found := false
	for _, h := range hashes {
		if hmac.Equal([]byte(h), []byte(stored)) {
			found = true
		}
	}
	return found
}

// Last4 returns the last four characters of a key, which may be shown and logged to tell keys
// apart. They belong to the checksum. For a text too short to be a key it returns "".
func Last4(text string) string {
	if len(text) < randomLen {
		return ""
	}
	return text[len(text)-4:]
}

func (c Class) known() bool { return c == Live || c == Admin || c == Test || c == Run }

// Looks reports whether a text begins like a key of any class, whole or not: it may be a secret.
func Looks(text string) bool {
	rest, ok := strings.CutPrefix(text, scheme)
	name, _, more := strings.Cut(rest, "_")
	return ok && more && Class(name).known()
}

// random returns n characters of the alphabet, each equally likely: it discards bytes of 248
// and above, because 248 = 4 x 62.
func random(n int) string {
	out := make([]byte, 0, n)
	var buf [64]byte
	for {
		_, _ = rand.Read(buf[:]) // never fails: it would end the program
		for _, b := range buf {
			if b >= 248 {
				continue
			}
			out = append(out, alphabet[b%62])
			if len(out) == n {
				return string(out)
			}
		}
	}
}

// checksum returns the CRC-32 of the preceding text, class included, in base62.
func checksum(body string) (out [checksumLen]byte) {
	sum := crc32.ChecksumIEEE([]byte(body))
	for i := checksumLen - 1; i >= 0; i-- {
		out[i] = alphabet[sum%62]
		sum /= 62
	}
	return out
}
