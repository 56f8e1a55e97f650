package admin_test

import "testing"

func TestCreateUser(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs/acme/users", `{"id":"carol","name":"Carol","weight":30}`,
		`{"id":"carol","org":"acme","name":"Carol","weight":30,"disabled":false,"keys":0,"source":"redis"}`)
	d.audited(`{"action":"user.create","org":"acme","target":"carol","actor":"ops"}`, "", `{"name":"Carol","weight":30}`)
	got := d.names("/orgs/acme/users", "id")
	if got != "alice bob carol" {
		t.Errorf("got the users %q, want those of the file and carol", got)
	}
	d.expect(200, "GET", "/orgs/acme", "", `{"users":3,"source":"file"}`)
}

func TestCreateUserIsRefused(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs/acme/users", `{"id":"carol"}`, "")
	for _, tc := range []struct {
		status            int
		code, param, body string
	}{
		{409, "user_exists", "id", `{"id":"carol"}`},
		{409, "user_exists", "id", `{"id":"alice"}`},
		{400, "invalid_value", "id", `{"id":""}`},
		{400, "invalid_value", "id", `{"id":"a/b"}`},
		{400, "invalid_value", "id", `{"id":"Ünsal"}`},
		{400, "invalid_value", "weight", `{"id":"dave","weight":-1}`},
		{400, "unknown_field", "email", `{"id":"dave","email":"dave@example.com"}`},
	} {
		d.refused(tc.status, tc.code, tc.param, "POST", "/orgs/acme/users", tc.body)
	}
}

func TestGetUser(t *testing.T) {
	d := deploy(t)
	d.expect(200, "GET", "/orgs/acme/users/alice", "",
		`{"id":"alice","org":"acme","keys":1,"source":"file","created_at":null,"updated_at":null}`)
	d.refused(404, "user_not_found", "user", "GET", "/orgs/acme/users/nobody", "")
	d.refused(404, "user_not_found", "user", "PATCH", "/orgs/acme/users/nobody", `{}`)
	d.refused(404, "user_not_found", "user", "DELETE", "/orgs/acme/users/nobody", "")
}

func TestUpdateUser(t *testing.T) {
	d := deploy(t)
	d.expect(200, "PATCH", "/orgs/acme/users/alice", `{"name":"Alice A","disabled":true}`,
		`{"name":"Alice A","disabled":true,"source":"both"}`)
	d.audited(`{"action":"user.update","org":"acme","target":"alice"}`, "", `{"name":"Alice A","disabled":true}`)
	d.expect(200, "GET", "/orgs/acme/keys/k1", "", `{"status":"disabled","disabled":false}`)
	d.expect(200, "PATCH", "/orgs/acme/users/alice", `{"disabled":null}`, `{"name":"Alice A","disabled":false}`)
	d.audited(`{"action":"user.update"}`, `{"disabled":true}`, `{"name":"Alice A"}`)
	d.expect(200, "GET", "/orgs/acme/keys/k1", "", `{"status":"active"}`)
	d.refused(400, "invalid_value", "weight", "PATCH", "/orgs/acme/users/alice", `{"weight":-3}`)
}

// A user of the file must be disabled or removed from the file; it cannot be deleted.
func TestDeleteUserOfTheFile(t *testing.T) {
	d := deploy(t)
	d.refused(409, "declared_in_file", "", "DELETE", "/orgs/acme/users/alice", "")
	d.expect(200, "PATCH", "/orgs/acme/users/alice", `{"disabled":true}`, "")
	d.expect(204, "DELETE", "/orgs/acme/users/alice", "", "")
	d.audited(`{"action":"user.delete","target":"alice"}`, `{"disabled":true}`, "")
	d.expect(200, "GET", "/orgs/acme/users/alice", "", `{"disabled":false,"source":"file","keys":1}`)
}

// Deleting a user also deletes its keys and its limits.
func TestDeleteUserOfRedis(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs/acme/users", `{"id":"carol","name":"Carol"}`, "")
	d.expect(201, "POST", "/orgs/acme/keys", `{"id":"c1","user":"carol"}`, "")
	d.expect(201, "POST", "/orgs/acme/keys", `{"id":"b1","user":"bob"}`, "")
	d.expect(200, "PATCH", "/orgs/acme/limits/daily?user=carol", `{"amount":"$50"}`, "")
	d.expect(200, "PATCH", "/orgs/acme/limits/daily?user=bob", `{"amount":"$40"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/users/carol?reason=left", "", "")
	d.audited(`{"action":"user.delete","org":"acme","target":"carol","reason":"left"}`, `{"name":"Carol"}`, "")
	got := d.names("/orgs/acme/keys", "id")
	if got != "k1 b1" {
		t.Errorf("got the keys %q, want k1 and bob's", got)
	}
	d.expect(201, "POST", "/orgs/acme/users", `{"id":"carol"}`, `{"keys":0}`)
	for user, amount := range map[string]float64{"carol": 10e9, "bob": 40e9} {
		for _, l := range d.list("/orgs/acme/limits?user=" + user) {
			if l["name"] == "daily" && l["amount"] != amount {
				t.Errorf("got %s's daily limit %v, want %v", user, l["amount"], amount)
			}
		}
	}
}

// Another user's key in the same org survives, and so does a user of the same name in another
// org.
func TestUsersOfTwoOrgsAreApart(t *testing.T) {
	d := deploy(t)
	d.globex()
	d.expect(201, "POST", "/orgs/globex/users", `{"id":"alice","name":"Other"}`, "")
	d.expect(204, "DELETE", "/orgs/globex/users/alice", "", "")
	d.expect(200, "GET", "/orgs/acme/users/alice", "", `{"source":"file","keys":1}`)
	d.expect(200, "GET", "/orgs/globex/users/gus", "", `{"keys":1}`)
	d.refused(404, "user_not_found", "user", "GET", "/orgs/globex/users/bob", "")
}
