package journal

import "context"

// Put is PutAll for one record.
func (j *Journal) Put(ctx context.Context, id string, data []byte) error {
	return j.PutAll(ctx, []Record{{id, data}})
}
