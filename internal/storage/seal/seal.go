// Package seal encrypts what is stored for tenants outside this process: bodies and responses
// of jobs as a whole, and files as streams. It uses AES-256-GCM with a ring of keys, and binds
// each text to its place, so that it cannot be opened anywhere else.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
)

// ErrNoKey is returned by Open if no key of the ring encrypted the text.
var ErrNoKey = errors.New("seal: the text was sealed with a key that is not in the ring")

// ErrBroken is returned by Open for a text that was modified, truncated or moved.
var ErrBroken = errors.New("seal: the text is damaged or belongs elsewhere")

// Key is one secret of a ring.
type Key struct {
	// ID identifies the key in what it encrypts, in plain text. 1 to 32 bytes.
	ID string
	// Secret has at least 16 bytes; the AES key is derived from it with HKDF-SHA256 (RFC 5869).
	Secret string
}

// Ring encrypts with its first key and decrypts with all of them. A nil Ring leaves texts
// unchanged. It is immutable and safe for concurrent use. One key may encrypt 2^32 texts,
// because nonces are random (NIST SP 800-38D, 8.3). Streams do not count, because each has its
// own key.
type Ring struct {
	first string
	keys  map[string]ringKey
}

type ringKey struct {
	text   cipher.AEAD
	stream []byte // keys of streams are derived from it
}

// magic is the prefix of every encrypted text. JSON never starts with NUL.
var magic = []byte("\x00lg1")

// NewRing returns a ring of the keys, newest first, or nil if there are none.
func NewRing(keys ...Key) (*Ring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	r := &Ring{first: keys[0].ID, keys: map[string]ringKey{}}
	for _, k := range keys {
		switch {
		case k.ID == "" || len(k.ID) > 32:
			return nil, fmt.Errorf("seal: key id %q must have 1 to 32 bytes", k.ID)
		case len(k.Secret) < 16:
			return nil, fmt.Errorf("seal: the secret of key %q has %d bytes; at least 16 are needed", k.ID, len(k.Secret))
		case r.has(k.ID):
			return nil, fmt.Errorf("seal: two keys are called %q", k.ID)
		}
		var err error
		r.keys[k.ID], err = derive(k)
		if err != nil {
			return nil, fmt.Errorf("seal: key %q: %w", k.ID, err)
		}
	}
	return r, nil
}

func (r *Ring) has(id string) bool { _, ok := r.keys[id]; return ok }

func derive(k Key) (ringKey, error) {
	raw, err := hkdf.Key(sha256.New, []byte(k.Secret), nil, "llmguard seal 1", 32)
	if err != nil {
		return ringKey{}, err
	}
	text, err := newGCM(raw)
	if err != nil {
		return ringKey{}, err
	}
	stream, err := hkdf.Key(sha256.New, []byte(k.Secret), nil, "llmguard seal streams 1", 32)
	return ringKey{text, stream}, err
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal encrypts a text, which becomes about 50 bytes longer. It can be opened only with the
// same place. plain is not modified; a nil Ring returns it.
func (r *Ring) Seal(plain []byte, place ...string) []byte {
	if r == nil {
		return plain
	}
	aead := r.keys[r.first].text
	head := len(magic) + 1 + len(r.first)
	out := make([]byte, 0, head+aead.NonceSize()+len(plain)+aead.Overhead())
	out = append(append(append(out, magic...), byte(len(r.first))), r.first...)
	nonce := out[head : head+aead.NonceSize()]
	rand.Read(nonce) // never fails: the runtime would abort the process
	return aead.Seal(out[:head+len(nonce)], nonce, plain, bind(out[:head], place))
}

// Open returns the text given to Seal. A text that was never encrypted is returned unchanged,
// because it may be older than the ring.
func (r *Ring) Open(text []byte, place ...string) ([]byte, error) {
	rest, sealed := bytes.CutPrefix(text, magic)
	if !sealed {
		return text, nil
	}
	if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
		return nil, ErrBroken
	}
	id, rest := string(rest[1:1+rest[0]]), rest[1+rest[0]:]
	if r == nil || !r.has(id) {
		return nil, fmt.Errorf("%w: %q", ErrNoKey, id)
	}
	aead := r.keys[id].text
	if len(rest) < aead.NonceSize() {
		return nil, ErrBroken
	}
	head := text[:len(text)-len(rest)]
	plain, err := aead.Open(nil, rest[:aead.NonceSize()], rest[aead.NonceSize():], bind(head, place))
	if err != nil {
		return nil, ErrBroken
	}
	return plain, nil
}

// bind returns the additional data of a text: its head and its place, each part with its
// length, so that different places never look the same.
func bind(head []byte, place []string) []byte {
	out := bytes.Clone(head)
	for _, part := range place {
		out = append(strconv.AppendInt(out, int64(len(part)), 10), ':')
		out = append(out, part...)
	}
	return out
}
