package blob

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/llmguard/llmguard/seal"
)

// TestBucket: an S3-compatible bucket, in parts.
func TestBucket(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("files"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	s := open(t, "s3://files?region=us-east-1&s3ForcePathStyle=true&endpoint="+srv.URL)
	conform(t, s)
	s.Seal(ring(t, "k"))
	if err := s.Remove(t.Context(), "acme/batch2/1-o"); err != nil {
		t.Fatal(err)
	}
	conform(t, s)
	if s.String() != "s3://files" {
		t.Errorf("is called %s", s)
	}
}

// TestBucketCut: a connection that breaks off says nothing about the blob.
func TestBucketCut(t *testing.T) {
	dir := t.TempDir()
	local := open(t, dir)
	local.Seal(ring(t, "k"))
	write(t, local, "file", string(make([]byte, 200_000)))
	sealed, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, 1000, 100_000, len(sealed) - 1} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(sealed)))
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = w.Write(sealed[:n])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}))
		t.Cleanup(srv.Close)
		t.Setenv("AWS_ACCESS_KEY_ID", "test")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
		s := open(t, "s3://files?region=us-east-1&s3ForcePathStyle=true&endpoint="+srv.URL)
		s.Seal(ring(t, "k"))
		r, err := s.Open(t.Context(), "file", 0)
		if err == nil {
			_, err = io.ReadAll(r)
			_ = r.Close()
		}
		if err == nil || errors.Is(err, seal.ErrBroken) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}
