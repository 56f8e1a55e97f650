// Package storage tests the blob store against third-party servers.
package storage

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/blobtest"
)

// bucket returns a store in an empty bucket.
func bucket(t *testing.T) *blob.Store {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("files"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	return blobtest.Open(t, "s3://files?region=us-east-1&s3ForcePathStyle=true&endpoint="+srv.URL)
}

// TestBucket: an S3-compatible bucket behaves like a directory.
func TestBucket(t *testing.T) {
	s := bucket(t)
	blobtest.Conform(t, s)
	if got, want := s.String(), "s3://files"; got != want {
		t.Errorf("is called %q, want %q", got, want)
	}
}

// TestBucketSealed: also with encryption.
func TestBucketSealed(t *testing.T) {
	s := bucket(t)
	s.Seal(blobtest.Ring(t, "k"))
	blobtest.Conform(t, s)
}

// TestBucketPages: a list spans several pages.
func TestBucketPages(t *testing.T) {
	s := bucket(t)
	const blobs = 1001
	for i := range blobs {
		blobtest.Write(t, s, name(i), "x")
	}
	if n, err := s.RemoveAll(t.Context(), "acme/", -1); n != blobs || err != nil {
		t.Errorf("removed %d and %v, want %d", n, err, blobs)
	}
}

func name(i int) string { return fmt.Sprintf("acme/%04d", i) }
