package blob

import (
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
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
