// A certified OpenID provider in a process of its own: node provider.mjs STATE PORT. It prints its issuer when it is up.
// STATE is a JSON file, read at each question: {users: {ada: {groups: [...]}}, clock: seconds that it is ahead}.
import { readFileSync } from "node:fs";
import Provider from "oidc-provider";

const [state, port] = process.argv.slice(2);
const read = () => JSON.parse(readFileSync(state, "utf8"));
const now = Date.now;
Date.now = () => now() + 1000 * (read().clock || 0);

const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: ["onramp", "another"].map((client_id) => ({
    client_id,
    client_secret: `secret of ${client_id}`,
    redirect_uris: read().redirects || ["http://testserver/admin/single-sign-on/callback/"],
    backchannel_logout_uri: read().logout,
    backchannel_logout_session_required: true,
  })),
  cookies: { keys: ["only for tests"] },
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email"] },
  features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true } },
  pkce: { required: () => true },
  fetch: (url, options) => globalThis.fetch(url, { ...options, dispatcher: undefined }), // 127.0.0.1, too
  async findAccount(ctx, id) {
    const user = read().users[id];
    const claims = () => ({ sub: id, preferred_username: id, email: `${id}@example.com`, ...user });
    return user && { accountId: id, claims };
  },
  async loadExistingGrant(ctx) {
    const { client, session, result } = ctx.oidc;
    if (result?.consent) return provider.Grant.find(result.consent.grantId);
    if (read().asks) return undefined; // for consent
    const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope("openid profile email");
    await grant.save();
    return grant;
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log(issuer));
