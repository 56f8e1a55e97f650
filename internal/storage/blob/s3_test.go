package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/storage/seal"
)

const (
	testKey    = "TESTKEYID"
	testSecret = "testsecret"
)

// fakeS3 opens a store in a bucket served by the handler, with short pauses between retries.
func fakeS3(t *testing.T, h http.HandlerFunc) *Store {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	s, err := Open(t.Context(), "s3://files?region=us-east-1&s3ForcePathStyle=true&endpoint="+srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	client(s).pause = time.Microsecond
	return s
}

func client(s *Store) *s3Client { return s.at.(*bucket).s3 }

// refuse responds with an S3 error document.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>%s</Code><Message>It is refused.</Message><AWSAccessKeyId>%s</AWSAccessKeyId>
<StringToSign>AWS4-HMAC-SHA256 of it</StringToSign><RequestId>REQ1</RequestId></Error>`, code, testKey)
}

func readStore(ctx context.Context, s *Store, name string) (string, error) {
	r, err := s.Open(ctx, name, 0)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// TestS3Retries: requests are retried after a temporary failure.
func TestS3Retries(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"429":               func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"500 InternalError": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "InternalError") },
		"502":               func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"503 SlowDown":      func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "SlowDown") },
		"504":               func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) },
		"400 RequestTimeout": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 400, "RequestTimeout")
		},
		"connection cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) < s3Tries {
					fail(w, r)
					return
				}
				_, _ = io.WriteString(w, "text")
			})
			if got, err := readStore(t.Context(), s, "acme/file"); got != "text" || err != nil {
				t.Errorf("got %q and %v after %d requests, want the text", got, err, requests.Load())
			}
		})
	}
}

// TestS3GivesUp: a permanent failure is an error that helps to find the cause and contains no
// secrets.
func TestS3GivesUp(t *testing.T) {
	for _, c := range []struct {
		status   int
		code     string
		requests int32
	}{
		{500, "InternalError", s3Tries},
		{503, "SlowDown", s3Tries},
		{403, "AccessDenied", 1},
		{403, "SignatureDoesNotMatch", 1},
		{404, "NoSuchBucket", 1},
		{301, "PermanentRedirect", 1},
		{501, "NotImplemented", 1},
	} {
		var requests atomic.Int32
		s := fakeS3(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			refuse(w, c.status, c.code)
		})
		_, err := readStore(t.Context(), s, "acme/file")
		if err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v, want an error that is not ErrNotFound", c.code, err)
			continue
		}
		if got := requests.Load(); got != c.requests {
			t.Errorf("%s: got %d requests, want %d", c.code, got, c.requests)
		}
		for _, want := range []string{strconv.Itoa(c.status), c.code, "It is refused.", "REQ1"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		for _, secret := range []string{testKey, testSecret, "HMAC"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q shows %q", err, secret)
			}
		}
	}
}

// TestS3NotFound: a blob is missing only if the bucket says so, not if a proxy in front of it
// returns 404.
func TestS3NotFound(t *testing.T) {
	s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "missing") {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		http.NotFound(w, r)
	})
	if _, err := readStore(t.Context(), s, "missing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if _, err := readStore(t.Context(), s, "elsewhere"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("got %v of a page, want another error", err)
	}
	if err := s.Remove(t.Context(), "missing"); err != nil {
		t.Errorf("got %v, want that removing a missing blob is no error", err)
	}
}

// TestS3Expired: expired credentials are fetched again.
func TestS3Expired(t *testing.T) {
	s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), testKey) {
			os.Setenv("AWS_ACCESS_KEY_ID", "NEWKEY")
			refuse(w, http.StatusBadRequest, "ExpiredToken")
			return
		}
		_, _ = io.WriteString(w, "text")
	})
	if got, err := readStore(t.Context(), s, "acme/file"); got != "text" || err != nil {
		t.Errorf("got %q and %v, want the text", got, err)
	}
}

// TestS3Hangs: a request without a response is retried, until its context is done.
func TestS3Hangs(t *testing.T) {
	const bound = 10 * time.Millisecond
	remove := func(ctx context.Context, s *Store) error { return s.Remove(ctx, "acme/file") }
	read := func(ctx context.Context, s *Store) error {
		_, err := s.Open(ctx, "acme/file", 0)
		return err
	}
	for _, c := range []struct {
		name      string
		limit     time.Duration
		transport *http.Transport
		send      func(context.Context, *Store) error
	}{
		{"remove", bound, &http.Transport{}, remove},
		{"read", time.Hour, &http.Transport{ResponseHeaderTimeout: bound}, read},
	} {
		t.Run(c.name, func(t *testing.T) {
			var requests atomic.Int32
			ctx, cancel := context.WithCancel(t.Context())
			s := fakeS3(t, func(_ http.ResponseWriter, r *http.Request) {
				if requests.Add(1) == 2 {
					cancel()
				}
				<-r.Context().Done()
			})
			client(s).limit = c.limit
			client(s).http.Transport = c.transport
			client(s).tries = 1000 // on a busy machine some time out before they arrive
			if err := c.send(ctx, s); err == nil || ctx.Err() == nil {
				t.Errorf("got %v after %d requests, want an error once it is cancelled", err, requests.Load())
			}
		})
	}
}

// TestS3Cut: a broken connection is not taken for a damaged or missing blob.
func TestS3Cut(t *testing.T) {
	ring, err := seal.NewRing(seal.Key{ID: "k", Secret: "a secret for the key"})
	if err != nil {
		t.Fatal(err)
	}
	var sealed strings.Builder
	w, err := ring.NewWriter(&sealed, "file")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 200_000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, 1000, 100_000, sealed.Len() - 1} {
		s := fakeS3(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(sealed.Len()))
			_, _ = io.WriteString(w, sealed.String()[:n])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		s.Seal(ring)
		if _, err := readStore(t.Context(), s, "file"); err == nil || errors.Is(err, seal.ErrBroken) {
			t.Errorf("cut after %d bytes: got %v, want an error of the connection", n, err)
		}
	}
}

// TestS3Ranges: reading from an offset requests only that range.
func TestS3Ranges(t *testing.T) {
	var ranges []string
	s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		ranges = append(ranges, r.Header.Get("Range"))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	})
	for offset, want := range map[int64]string{0: "0123456789", 7: "789", 10: "", 11: ""} {
		ranges = nil
		r, err := s.Open(t.Context(), "acme/file", offset)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		_ = r.Close()
		if string(got) != want || err != nil {
			t.Errorf("from %d: got %q and %v, want %q", offset, got, err, want)
		}
		wanted := []string{""}
		if offset > 0 {
			wanted = []string{fmt.Sprintf("bytes=0-%d", seal.MaxHead-1), fmt.Sprintf("bytes=%d-", offset)}
		}
		if !slices.Equal(ranges, wanted) {
			t.Errorf("from %d: got ranges %q, want %q", offset, ranges, wanted)
		}
	}
}

// TestS3RangeIgnored: if a server ignores the range and sends the whole object, that is an
// error.
func TestS3RangeIgnored(t *testing.T) {
	s := fakeS3(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") })
	if r, err := s.Open(t.Context(), "acme/file", 7); err == nil {
		got, _ := io.ReadAll(r)
		t.Errorf("got %q, want an error", got)
	}
}

// TestS3Pages: a list includes all pages.
func TestS3Pages(t *testing.T) {
	tokens := []string{"", "a+b/c=", "&last"}
	s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		page := slices.Index(tokens, q.Get("continuation-token"))
		if page < 0 || q.Get("prefix") != "acme/" || q.Get("list-type") != "2" {
			refuse(w, http.StatusBadRequest, "InvalidArgument")
			return
		}
		next := ""
		if page+1 < len(tokens) {
			next = "<IsTruncated>true</IsTruncated><NextContinuationToken>" +
				strings.ReplaceAll(tokens[page+1], "&", "&amp;") + "</NextContinuationToken>"
		}
		fmt.Fprintf(w, `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Contents><Key>acme/%d</Key>
<LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>%s</ListBucketResult>`, page, next)
	})
	var got []string
	err := s.Each(t.Context(), "acme/", func(name string, at time.Time) error {
		got = append(got, name+" "+at.Format(time.RFC3339))
		return nil
	})
	at := " 2026-01-02T03:04:05Z"
	if want := []string{"acme/0" + at, "acme/1" + at, "acme/2" + at}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
}

// TestS3WrongList: a response that is not a list is an error, not an empty list, and so is an
// endless list.
func TestS3WrongList(t *testing.T) {
	for name, answer := range map[string]string{
		"a page":    "<html><body>Sign in</body></html>",
		"no XML":    "ready",
		"nothing":   "",
		"other XML": "<ListAllMyBucketsResult/>",
		"cut XML":   "<ListBucketResult><Contents><Key>acme/1</Key>",
		"no token":  "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
		"same token": "<ListBucketResult><IsTruncated>true</IsTruncated>" +
			"<NextContinuationToken>x</NextContinuationToken></ListBucketResult>",
		"an error, 200": "<Error><Code>AccessDenied</Code></Error>",
	} {
		s := fakeS3(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		if n, err := s.RemoveAll(t.Context(), "acme/", 0); err == nil || n != 0 {
			t.Errorf("%s: got %d blobs and %v, want an error", name, n, err)
		}
	}
}
