package blob

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// bucket stores blobs as objects of an S3-compatible bucket.
type bucket struct {
	s3         *s3Client
	encryption http.Header // sent with every written object
}

func (b *bucket) close() { b.s3.http.CloseIdleConnections() }

func (b *bucket) open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if length == 0 {
		return http.NoBody, nil
	}
	header := http.Header{}
	switch {
	case length > 0:
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := b.s3.stream(ctx, s3Request{method: http.MethodGet, name: name, header: header})
	var refused *s3Error
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusRequestedRangeNotSatisfiable:
		return http.NoBody, nil // the offset is at or past the end
	case errors.As(err, &refused) && refused.Code == "NoSuchKey":
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	}
	if offset > 0 && resp.StatusCode != http.StatusPartialContent {
		_ = resp.Body.Close()
		return nil, errors.New("the bucket ignores the range of a read")
	}
	if length > 0 {
		return opened{io.LimitReader(resp.Body, length), resp.Body}, nil
	}
	return resp.Body, nil
}

func (b *bucket) create(ctx context.Context, name string, exclusive bool) (upload, error) {
	header := b.encryption.Clone()
	header.Set("Content-Type", "application/octet-stream")
	return &objectUpload{s3: b.s3, ctx: ctx, name: name, header: header, once: exclusive}, nil
}

func (b *bucket) remove(ctx context.Context, name string) error {
	_, err := b.s3.send(ctx, s3Request{method: http.MethodDelete, name: name}, nil)
	if refused, ok := errors.AsType[*s3Error](err); ok && refused.Code == "NoSuchKey" {
		return nil
	}
	return err
}

// objectList is one page of a list.
type objectList struct {
	XMLName  xml.Name `xml:"ListBucketResult"`
	Contents []struct {
		Key          string
		LastModified time.Time
	}
	IsTruncated           bool
	NextContinuationToken string
}

func (b *bucket) each(ctx context.Context, prefix string, fn func(name string, at time.Time) error) error {
	query := url.Values{"list-type": {"2"}, "prefix": {prefix}}
	for {
		var page objectList
		_, err := b.s3.send(ctx, s3Request{method: http.MethodGet, query: query}, &page)
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		for _, object := range page.Contents {
			if err := fn(object.Key, object.LastModified); err != nil {
				return err
			}
		}
		if !page.IsTruncated {
			return nil
		}
		next := page.NextContinuationToken
		if next == "" || next == query.Get("continuation-token") {
			return errors.New("blob: list: the bucket returned no token for the next page")
		}
		query.Set("continuation-token", next)
	}
}
