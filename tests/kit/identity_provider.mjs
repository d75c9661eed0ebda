// An OpenID provider: npm oidc-provider, with people and clients from the first argument.

import Provider from "oidc-provider";

const { people, client } = JSON.parse(process.argv[2]);

const listening = (await import("node:http")).createServer().listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${listening.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ ...client, redirect_uris: ["http://127.0.0.1:1/"] }],
    pkce: { required: () => true },
    scopes: ["openid", "profile", "email", "groups"],
    claims: { openid: ["sub"], profile: ["name"], email: ["email"], groups: ["groups"] },
    conformIdTokenClaims: false, // the claims of scopes are in the ID token, as groups are at most providers
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...people[sub] }) }),
    loadExistingGrant: async (ctx) => {
      // No consent page: the operator has agreed for all.
      const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
      grant.addOIDCScope([...ctx.oidc.requestParamScopes].join(" "));
      await grant.save();
      return grant;
    },
  });
  // The address of the gateway is not known before this program runs.
  provider.Client.prototype.redirectUriAllowed = (uri) => uri.startsWith("http://127.0.0.1:");
  provider.Client.prototype.postLogoutRedirectUriAllowed = (uri) => uri.startsWith("http://127.0.0.1:");
  listening.on("request", provider.callback());
  process.stdout.write(`${issuer}\n`);
});
