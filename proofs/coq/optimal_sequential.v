(* The optimal sequential rule: feasibility, optimality and existence.

   Proved, for every finite V, every ordered field F, all laws p, q and every n. phi(t) = sum_x min(p(x), t q(x)).
   Rounds are numbered from 0: T k here is T_{k+1} of docs/explanation/optimal-rules.md, so T n is its T_{n+1}.
   - Feasible: for all levels with T_n = 0 and 0 <= T_k - T_{k+1} <= W_k, W_k = z + phi(T_k), z = 1 - phi(T_0), the
     rule with targets R_k = (p - T_0 q)_+ + min(p, T_k q) reserves R_{k+1} independently of the rejected token,
     emits exactly p, and accepts with total probability phi(T_0)
                                                             (optimal_shaped, optimal_exact, optimal_acceptance).
     Where T_k - T_{k+1} = W_k, the acceptance is clip((p/q - T_{k+1}) / W_k, 0, 1)   (optimal_clip).
   - Optimal, in averaged masses: let T_k - T_{k+1} = W_k and T_n = 0. Any accepted masses A_k with
     0 <= A_k <= W'_k q, W'_0 <= 1, W'_{k+1} <= W'_k - |A_k| and sum_k A_k <= p leave 1 - sum_k |A_k| >= z
                                                                                               (masses_bound).
   - These masses exist for every sequential rule that looks at up to n independent candidates from q, whatever
     it remembers and wherever it stops early; only averaged masses enter, averaged over the rejected
     tokens. So no such rule with marginal <= p (in particular, no exact one) accepts more than phi(T_0) (rule_bound).
   - Levels with T_k - T_{k+1} = W_k >= 0 and T_n = 0 exist, with 1 <= T_0 <= n            (levels_exist). This needs
     no completeness, because everything is piecewise linear; so it holds over the rationals.
   - Together: optimal_sequential.
   Left: uniqueness of phi(T_0) as a statement of its own (it follows from rule_bound), that T_0 is the expected
   number of candidates looked at, and the closed formula of T_{n+1}'s slope that the solver uses. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws token_free piecewise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section MinStep.
Variable F : realFieldType.

(* t -> min(u, t c) is non-decreasing, with slope at most c. *)
Lemma min_mono (u c s t : F) : 0 <= c -> s <= t -> Num.min u (s * c) <= Num.min u (t * c).
Proof.
move=> c_ge0 st; rewrite le_minr !le_minl lexx /=.
by rewrite [s * c <= _]ler_wpmul2r ?orbT.
Qed.

Lemma min_slope (u c s t : F) :
  0 <= c -> s <= t -> Num.min u (t * c) <= Num.min u (s * c) + (t - s) * c.
Proof.
move=> c_ge0 st; have step_ge0 : 0 <= (t - s) * c by rewrite mulr_ge0 ?subr_ge0.
case: (leP u (s * c)) => _; first by rewrite le_minl ler_addl step_ge0.
by rewrite le_minl orbC mulrBl addrC subrK lexx.
Qed.

End MinStep.

Section Optimal.
Variables (F : realFieldType) (V : finType) (p q : V -> F).
Hypothesis p_law : is_law p.
Hypothesis q_law : is_law q.
Implicit Types (T : nat -> F) (t : rule F V).

Let p_ge0 := p_law.1.
Let q_ge0 := q_law.1.

Definition phi (s : F) : F := mass (fun x => Num.min (p x) (s * q x)).

Lemma phi_mono s s' : s <= s' -> phi s <= phi s'.
Proof. by move=> le_s; apply: le_mass => x; apply: min_mono. Qed.

Lemma phi_slope s s' : s <= s' -> phi s' <= phi s + (s' - s).
Proof.
move=> le_s; rewrite -[X in _ + X]mulr1 -q_law.2 -massZ -massD.
by apply: le_mass => x; apply: min_slope.
Qed.

Lemma phi_le1 s : phi s <= 1.
Proof. by rewrite -p_law.2; apply: le_mass => x; rewrite le_minl lexx. Qed.

Lemma phi0 : phi 0 = 0.
Proof. by rewrite /phi /mass big1 // => x _; rewrite mul0r (min_idPr _). Qed.

(* G(t) = t - phi(t) is non-decreasing. *)
Lemma gap_mono s s' : s <= s' -> s - phi s <= s' - phi s'.
Proof. by move=> /phi_slope; rewrite -[phi s' <= _]subr_ge0 => ge0; apply: (le_of_diff ge0); ring. Qed.

Section Rule.
Variable T : nat -> F.

Definition missed : F := 1 - phi (T 0%N).
Definition looked_at k : F := missed + phi (T k).
Definition target k x : F := pos (p x - T 0%N * q x) + Num.min (p x) (T k * q x).
Definition accept k x : F := (target k x - target k.+1 x) / (looked_at k * q x).

(* left more rounds after the first k *)
Fixpoint optimal_from k left : rule F V :=
  if left is left'.+1 then
    Round q (accept k) (fun=> optimal_from k.+1 left')
  else Draw (scale (looked_at k) (target k)).

Definition optimal n := optimal_from 0 n.

Lemma target_first x : target 0 x = p x.
Proof. by rewrite /target min_pos addrC subrK. Qed.

Lemma target_mass k : mass (target k) = looked_at k.
Proof.
rewrite massD -/(phi _) /looked_at; congr (_ + _).
rewrite /missed -p_law.2 -massB; apply: eq_mass => x.
by rewrite pos_min minC.
Qed.

Variable n : nat.
Hypothesis T_last : T n = 0.
Hypothesis T_step : forall k, (k < n)%N -> 0 <= T k - T k.+1 <= looked_at k.

Lemma level_ge0 k : (k <= n)%N -> 0 <= T k.
Proof.
move=> /subnKC; move: (n - k)%N => d; elim: d k => [|d IH] k def_n; first by rewrite -(addn0 k) def_n T_last.
have /T_step/andP[+ _] : (k < n)%N by rewrite -def_n addnS ltnS leq_addr.
by rewrite subr_ge0; apply: le_trans; apply: IH; rewrite addSnnS.
Qed.

Lemma target_ge0 k : (k <= n)%N -> nonneg (target k).
Proof.
move=> le_kn x; rewrite addr_ge0 ?pos_ge0 // le_minr p_ge0.
by rewrite mulr_ge0 // level_ge0.
Qed.

Lemma optimal_round k : (k < n)%N ->
  shaped_round (looked_at k) (target k) q (accept k) (target k.+1).
Proof.
move=> lt_kn; have /andP[step_ge0 step_le] := T_step lt_kn.
have le_T : T k.+1 <= T k by rewrite -subr_ge0.
split=> // x; last by rewrite ler_add2l min_mono.
rewrite /pos le_maxl target_ge0 // andbT ler_subl_addr /target -addrA ler_add2l.
by apply: le_trans (min_slope _ _ le_T) _ => //; rewrite ler_add2l ler_wpmul2r.
Qed.

Lemma optimal_from_shaped left k : (k + left = n)%N -> shaped_weighted (target k) (optimal_from k left).
Proof.
elim: left k => [|left IH] k def_n /=.
  have le_kn : (k <= n)%N by rewrite -def_n leq_addr.
  left=> x; rewrite target_mass /scale; have [w0 | w_neq0] := eqVneq (looked_at k) 0; last by rewrite mulrC divfK.
  by rewrite w0 mul0r; apply: (mass0 (target_ge0 le_kn)); rewrite target_mass.
have lt_kn : (k < n)%N by rewrite -def_n addnS ltnS leq_addr.
apply: (@WeightedStep _ _ _ _ _ (target k.+1)) => [|x _]; first by rewrite target_mass; apply: optimal_round.
by apply: IH; rewrite addSnnS.
Qed.

Theorem optimal_shaped : shaped_weighted (target 0) (optimal n).
Proof. exact: optimal_from_shaped (add0n n). Qed.

Theorem optimal_exact y : marginal (optimal n) y = p y.
Proof.
have := shaped_weighted_exact optimal_shaped (target_ge0 (leq0n n)) y.
by rewrite target_first (eq_mass target_first) p_law.2 mul1r.
Qed.

Lemma optimal_from_acceptance left k : (k + left = n)%N ->
  looked_at k * acceptance (optimal_from k left) = looked_at k - looked_at n.
Proof.
elim: left k => [|left IH] k def_n /=; first by rewrite -def_n addn0 mulr0 subrr.
have lt_kn : (k < n)%N by rewrite -def_n addnS ltnS leq_addr.
have R_ge0 := target_ge0 (ltnW lt_kn); have shape := optimal_round lt_kn.
rewrite mulrDr -mulr_suml mulrA !mulr_sumr.
rewrite (eq_bigr _ (fun x _ => accepted_weight R_ge0 shape x)) -/(mass _) massB !target_mass.
rewrite (rejected_weight R_ge0 (target_mass k) shape) target_mass IH ?addSnnS //; ring.
Qed.

Theorem optimal_acceptance : acceptance (optimal n) = phi (T 0%N).
Proof.
have := optimal_from_acceptance (add0n n).
by rewrite /looked_at T_last phi0 addr0 /missed subrK mul1r => ->; ring.
Qed.

Theorem optimal_clip k x : (k < n)%N -> T k - T k.+1 = looked_at k -> 0 < looked_at k -> 0 < q x ->
  accept k x = Num.min 1 (Num.max 0 ((p x / q x - T k.+1) / looked_at k)).
Proof.
rewrite /accept => lt_kn def_W W_gt0 q_gt0; set W := looked_at k in def_W W_gt0 *; set c := q x in q_gt0 *.
have [W_neq0 c_neq0] : W != 0 /\ c != 0 by rewrite !gt_eqF.
have T_def : T k = T k.+1 + W by rewrite -def_W addrC subrK.
have {1}-> : target k x - target k.+1 x = Num.min (p x) (T k * c) - Num.min (p x) (T k.+1 * c).
  by rewrite /target -/c; ring.
set u := p x / c; have -> : p x = u * c by rewrite divfK.
have le_uc s : (u * c <= s * c) = (u <= s) by rewrite ler_pmul2r.
have Wc_neq0 : W * c != 0 by rewrite mulf_neq0.
have min_l s : u <= s -> Num.min (u * c) (s * c) = u * c by move=> le_us; apply/min_idPl; rewrite le_uc.
have min_r s : s <= u -> Num.min (u * c) (s * c) = s * c by move=> le_su; apply/min_idPr; rewrite ler_pmul2r.
apply: (mulIf Wc_neq0); rewrite divfK //; case: (leP u (T k.+1)) => [u_le | u_gt].
  have u_leT : u <= T k by rewrite T_def (le_trans u_le) // ler_addl ltW.
  rewrite !min_l // subrr (max_idPl _); last by rewrite pmulr_lle0 ?invr_gt0 // subr_le0.
  by rewrite (min_idPr _) ?ler01 // mul0r.
rewrite (min_r (T k.+1)) ?ltW // (max_idPr _); last by rewrite divr_ge0 ?subr_ge0 // ltW.
case: (leP 1 ((u - T k.+1) / W)).
  by rewrite le_div // mul1r ler_subr_addl -T_def => T_le; rewrite min_r // T_def; ring.
rewrite lt_div // mul1r ltr_subl_addl -T_def => u_lt.
by rewrite min_l ?ltW //; field.
Qed.

End Rule.

(* Levels that solve the recursion: T_{k+1} = T_k - W_k, T_n = 0. *)
Definition levels n T := T n = 0 /\ forall k, (k < n)%N -> T k - T k.+1 = looked_at T k.

Section Bound.
Variables (n : nat) (T : nat -> F) (A : nat -> V -> F) (W : nat -> F).
Hypothesis T_levels : levels n T.
Hypothesis A_ge0 : forall k x, 0 <= A k x.
Hypothesis A_le : forall k x, (k < n)%N -> A k x <= W k * q x.
Hypothesis A_sum : forall x, \sum_(0 <= k < n) A k x <= p x.
Hypothesis W_first : W 0%N <= 1.
Hypothesis W_next : forall k, (k < n)%N -> W k.+1 <= W k - mass (A k).

(* What is looked at, and accepted, from round k on. *)
Let T' k : F := \sum_(k <= j < n) W j.
Let S k : F := \sum_(k <= j < n) mass (A j).
Let z' : F := 1 - S 0.

Lemma accepted_from k : S k <= phi (T' k).
Proof.
rewrite /S /mass exchange_big /=; apply: le_mass => x; rewrite le_minr; apply/andP; split.
  apply: le_trans (A_sum x); have [le_nk | lt_kn] := leqP n k; first by rewrite big_geq // sumr_ge0.
  by rewrite [leRHS](big_cat_nat _ _ _ (leq0n k) (ltnW lt_kn)) ler_addr sumr_ge0.
by rewrite /T' mulr_suml; apply: ler_sum_nat => j /andP[_ lt_jn]; apply: A_le.
Qed.

Lemma looked_at_le k : (k <= n)%N -> W k <= z' + S k.
Proof.
elim: k => [_ | k IH lt_kn]; first by rewrite /z' subrK.
have {IH} := le_trans (W_next lt_kn) (ler_sub (IH (ltnW lt_kn)) (lexx _)).
by rewrite /S [in X in _ <= X -> _](big_ltn lt_kn) addrA addrAC addrK.
Qed.

Theorem masses_bound : missed T <= 1 - \sum_(0 <= k < n) mass (A k).
Proof.
have [T_last T_step] := T_levels; rewrite -/(S 0) -/z' leNgt; apply/negP => z'_lt.
suff le_T d k : (k + d = n)%N -> T' k <= T k.
  have := le_trans (accepted_from 0) (phi_mono (le_T n 0%N (add0n n))).
  have -> : S 0 = 1 - z' by rewrite /z' opprB addrC subrK.
  have -> : phi (T 0%N) = 1 - missed T by rewrite /missed opprB addrC subrK.
  by rewrite ler_add2l ler_oppr opprK leNgt z'_lt.
elim: d k => [|d IH] k def_n; first by rewrite -(addn0 k) def_n T_last /T' big_geq.
have lt_kn : (k < n)%N by rewrite -def_n addnS ltnS leq_addr.
have {IH} le_next : T' k.+1 <= T k.+1 by apply: IH; rewrite addSnnS.
rewrite leNgt; apply/negP => /ltW/gap_mono; rewrite leNgt => /negP[].
have -> : T k - phi (T k) = missed T + T k.+1.
  by rewrite -[X in X - _](subrK (T k.+1)) T_step // /looked_at; ring.
have T'_def : T' k = W k + T' k.+1 by rewrite /T' big_ltn.
have := le_trans (looked_at_le (ltnW lt_kn)) (ler_add (lexx z') (accepted_from k)).
rewrite -[W k <= _]subr_ge0 => le_W; rewrite -subr_ge0 in le_next; rewrite -subr_gt0 in z'_lt.
apply: (lt_of_diff (ltr_paddr (addr_ge0 le_W le_next) z'_lt)).
by rewrite T'_def; ring.
Qed.

End Bound.

(* A rule that draws its candidates independently from q, accepts with probabilities, and stops by drawing
   from something non-negative. *)
Fixpoint iid t : Prop :=
  match t with
  | Draw R => nonneg R
  | Round q' a next => [/\ q' =1 q, forall x, q x != 0 -> 0 <= a x <= 1 & forall x, iid (next x)]
  end.

Fixpoint rounds_le n t : Prop :=
  match t, n with
  | Draw _, _ => True
  | Round _ _ _, 0%N => False
  | Round _ _ next, n'.+1 => forall x, rounds_le n' (next x)
  end.

(* Averaged over what was rejected before: the probability that the candidate k is looked at, and that it is y
   and is accepted. *)
Fixpoint looked t k : F :=
  match t, k with
  | Draw _, _ => 0
  | Round _ _ _, 0%N => 1
  | Round q a next, k'.+1 => \sum_x q x * (1 - a x) * looked (next x) k'
  end.

Fixpoint accepted t k y : F :=
  match t, k with
  | Draw _, _ => 0
  | Round q a _, 0%N => q y * a y
  | Round q a next, k'.+1 => \sum_x q x * (1 - a x) * accepted (next x) k' y
  end.

Section AnyRule.

Lemma accept_ge0 a x : (q x != 0 -> 0 <= a x <= 1) -> 0 <= q x * a x <= q x /\ 0 <= q x * (1 - a x).
Proof.
have [-> _ | q_neq0 /(_ isT)/andP[a_ge0 a_le1]] := eqVneq (q x) 0; first by rewrite !mul0r lexx.
by rewrite !mulr_ge0 ?subr_ge0 // ler_pimulr.
Qed.

Lemma accepted_ge0 t : iid t -> forall k y, 0 <= accepted t k y.
Proof.
elim: t => [R _ // | q' a next IH /= [eq_q a01 next_iid] [|k] y].
  by rewrite eq_q; have [/andP[]] := accept_ge0 (a01 y).
apply: sumr_ge0 => x _; rewrite eq_q mulr_ge0 //; last exact: IH.
by have [_] := accept_ge0 (a01 x).
Qed.

Lemma accepted_le t : iid t -> forall k y, accepted t k y <= looked t k * q y.
Proof.
elim: t => [R _ k y | q' a next IH /= [eq_q a01 next_iid] [|k] y]; first by rewrite mul0r.
  by rewrite eq_q mul1r; have [/andP[]] := accept_ge0 (a01 y).
rewrite mulr_suml; apply: ler_sum => x _; rewrite -[leRHS]mulrA eq_q ler_wpmul2l //; last exact: IH.
by have [_] := accept_ge0 (a01 x).
Qed.

Lemma looked_first t : looked t 0 <= 1.
Proof. by case: t => //= _; apply: ler01. Qed.

Lemma looked_next t : iid t -> forall k, looked t k.+1 <= looked t k - mass (accepted t k).
Proof.
elim: t => [R _ k | q' a next IH [eq_q a01 next_iid] k].
  by rewrite /mass big1 // subr0.
have q'a_ge0 x : 0 <= q' x * (1 - a x) by rewrite eq_q; have [_] := accept_ge0 (a01 x).
case: k => [|k].
  rewrite /= -[X in X - _]q_law.2 -massB; apply: ler_sum => x _.
  apply: le_trans (ler_wpmul2l (q'a_ge0 x) (looked_first (next x))) _.
  by rewrite mulr1 mulrBr mulr1 eq_q.
rewrite /= /mass exchange_big /= -sumrB; apply: ler_sum => x _.
by rewrite -mulr_sumr -mulrBr; apply: ler_wpmul2l => //; apply: IH (next_iid x) k.
Qed.

Lemma accepted_sum t : iid t -> forall n y, \sum_(0 <= k < n) accepted t k y <= marginal t y.
Proof.
elim: t => [R R_ge0 n y | q' a next IH [eq_q a01 next_iid] n y]; first by rewrite big1 //; apply: R_ge0.
have q'a_ge0 x : 0 <= q' x * (1 - a x) by rewrite eq_q; have [_] := accept_ge0 (a01 x).
have q'a y' : 0 <= q' y' * a y' by rewrite eq_q; have [/andP[]] := accept_ge0 (a01 y').
case: n => [|n]; last rewrite big_nat_recl //=.
  rewrite big_geq //= addr_ge0 //; apply: sumr_ge0 => x _; rewrite mulr_ge0 //.
  by apply: le_trans (IH x (next_iid x) 0%N y); rewrite big_geq.
rewrite ler_add2l exchange_big /=; apply: ler_sum => x _.
by rewrite -mulr_sumr; apply: ler_wpmul2l => //; apply: IH (next_iid x) n y.
Qed.

Lemma acceptance_sum t n : rounds_le n t -> acceptance t = \sum_(0 <= k < n) mass (accepted t k).
Proof.
elim: t n => [R n _ | q' a next IH [|n] //= t_le].
  by rewrite big1 // => k _; rewrite /mass big1.
rewrite big_nat_recl //=; congr (_ + _).
under [RHS]eq_bigr do rewrite /mass exchange_big /=.
rewrite exchange_big /=; apply: eq_bigr => x _.
rewrite (IH x n (t_le x)) mulr_sumr; apply: eq_bigr => k _.
by rewrite /mass mulr_sumr.
Qed.

End AnyRule.

(* No sequential rule accepts more, whatever it remembers. *)
Theorem rule_bound n T t :
  levels n T -> iid t -> rounds_le n t -> (forall y, marginal t y <= p y) -> acceptance t <= phi (T 0%N).
Proof.
move=> T_levels t_iid t_le t_law.
have := masses_bound T_levels (accepted_ge0 t_iid) (fun k x _ => accepted_le t_iid k x)
  (fun x => le_trans (accepted_sum t_iid n x) (t_law x)) (looked_first t) (fun k _ => looked_next t_iid k).
by rewrite -(acceptance_sum t_le) /missed ler_add2l ler_oppr opprK.
Qed.

Section Existence.

(* T_k as a function of s = T_0. *)
Fixpoint level (s : F) k : F := if k is k'.+1 then level s k' - (1 - phi s + phi (level s k')) else s.

Lemma piecewise_phi f a b : piecewise f a b -> piecewise (fun s => phi (f s)) a b.
Proof.
move=> pf; apply: piecewise_sum => x; apply: piecewise_min; first exact: piecewise_const.
by apply: eq_piecewise (piecewise_scale (q x) pf) => s _; rewrite mulrC.
Qed.

Lemma piecewise_level k a b : piecewise (fun s => level s k) a b.
Proof.
elim: k => [|k IH] /=; first exact: piecewise_id.
apply: piecewise_sub IH (piecewise_add _ (piecewise_phi IH)).
by apply: piecewise_sub; [apply: piecewise_const | apply/piecewise_phi/piecewise_id].
Qed.

Lemma gap_le0 s : s <= 0 -> s - phi s <= 0.
Proof. by move=> /gap_mono; rewrite phi0 subr0. Qed.

Lemma gap_ge0 s : 0 <= s - phi s.
Proof.
have [s_le0 | /ltW/gap_mono] := leP s 0; last by rewrite phi0 subr0.
suff -> : phi s = s by rewrite subrr.
rewrite -[RHS]mulr1 -q_law.2 -massZ; apply: eq_mass => x.
by rewrite (min_idPr _) // (le_trans _ (p_ge0 x)) // mulr_le0_ge0.
Qed.

Lemma level_at_1 n : level 1 n.+1 <= 0.
Proof.
elim: n => [|n IH] /=; first by rewrite subrK subrr.
have := ler_sub (gap_le0 IH) (_ : 0 <= 1 - phi 1); rewrite subr_ge0 phi_le1 subr0 => /(_ isT).
by congr (_ <= _); rewrite /=; ring.
Qed.

Lemma level_at_n n k : (k <= n)%N -> n%:R - k%:R <= level n%:R k <= n%:R.
Proof.
elim: k => [|k IH] lt_kn /=; first by rewrite subr0 lexx.
have /andP[ge_k le_n] := IH (ltnW lt_kn); set T_k := level _ k in ge_k le_n *.
have Tk_ge0 : 0 <= T_k by apply: le_trans ge_k; rewrite subr_ge0 ler_nat ltnW.
have phi_Tk : 0 <= phi T_k by rewrite -phi0 phi_mono.
have phi_n : phi T_k <= phi n%:R by apply: phi_mono.
have z_ge0 : 0 <= 1 - phi n%:R by rewrite subr_ge0 phi_le1.
apply/andP; split; last by rewrite ler_subl_addr ler_paddr // addr_ge0.
rewrite -[_ <= T_k]subr_ge0 in ge_k; rewrite -[phi _ <= phi _]subr_ge0 in phi_n.
by apply: (le_of_diff (addr_ge0 ge_k phi_n)); rewrite -[k.+1]addn1 natrD; ring.
Qed.

Theorem levels_exist n : (0 < n)%N ->
  exists T, [/\ levels n T, 1 <= T 0%N <= n%:R & forall k, (k < n)%N -> 0 <= looked_at T k].
Proof.
case: n => // n _; pose N := n.+1.
have [| |s /andP[s_ge1 s_le] s_root] := intermediate_value (y := 0) (piecewise_level N 1 N%:R).
- by rewrite (ler_nat _ 1).
- by rewrite level_at_1 /=; have /andP[+ _] := level_at_n (leqnn N); rewrite subrr.
pose T := level s; pose z := 1 - phi s; have s_levels : levels N T.
  by split=> // k _; rewrite /T /= opprB addrC subrK.
exists T; split=> //; first by rewrite s_ge1 s_le.
have z_ge0 : 0 <= z by rewrite subr_ge0 phi_le1.
have TS k : T k.+1 = T k - phi (T k) - z by rewrite /T /z /=; ring.
suff T_ge0 k : (k <= N)%N -> 0 <= T k.
  by move=> k lt_kn; rewrite /looked_at addr_ge0 // -phi0 phi_mono // T_ge0 // ltnW.
have [z0 | z_neq0] := eqVneq z 0.
  case: k => [_ | k _]; first by rewrite /T /= (le_trans ler01).
  by rewrite TS z0 subr0 gap_ge0.
move=> /subnKC; move: (N - k)%N => d; elim: d k => [|d IH] k def_N.
  by rewrite -(addn0 k) def_N /T s_root.
have T_next : 0 <= T k.+1 by apply: IH; rewrite addSnnS.
have z_gt0 : 0 < z by rewrite lt_neqAle eq_sym z_neq0.
rewrite leNgt; apply/negP => /ltW/gap_le0; rewrite leNgt => /negP[].
by have := ltr_paddl T_next z_gt0; rewrite TS subrK.
Qed.

End Existence.

Lemma optimal_iid T n : levels n T -> (forall k, (k < n)%N -> 0 <= looked_at T k) ->
  iid (optimal T n) /\ rounds_le n (optimal T n).
Proof.
move=> [T_last T_step] W_ge0.
have T_ok k : (k < n)%N -> 0 <= T k - T k.+1 <= looked_at T k.
  by move=> lt_kn; rewrite T_step // W_ge0 // lexx.
suff ok left k : (k + left = n)%N ->
  iid (optimal_from T k left) /\ rounds_le left (optimal_from T k left) by apply: ok.
elim: left k => [|left IH] k def_n.
  have R_ge0 := target_ge0 T_last T_ok (eq_leq (etrans (esym (addn0 k)) def_n)).
  by split=> // x; rewrite /scale divr_ge0 // -target_mass mass_ge0.
have lt_kn : (k < n)%N by rewrite -def_n addnS ltnS leq_addr.
have [|next_iid next_le] := IH k.+1; first by rewrite addSnnS.
split=> //; split=> // x q_neq0; have [w0 | w_neq0] := eqVneq (looked_at T k) 0.
  by rewrite /accept w0 mul0r invr0 mulr0 lexx ler01.
apply: (accept_in_01 (target_ge0 T_last T_ok (ltnW lt_kn)) (target_mass T k) (optimal_round T_last T_ok lt_kn)).
by rewrite mulf_neq0.
Qed.

Theorem optimal_sequential n : (0 < n)%N ->
  exists T, [/\ levels n T, 1 <= T 0%N <= n%:R & forall k, (k < n)%N -> 0 <= looked_at T k] /\
    let best := optimal T n in
    [/\ iid best, rounds_le n best, forall y, marginal best y = p y, acceptance best = phi (T 0%N) &
      forall t, iid t -> rounds_le n t -> (forall y, marginal t y = p y) -> acceptance t <= acceptance best].
Proof.
move=> n_gt0; have [T [T_levels T_first W_ge0]] := levels_exist n_gt0; exists T; split=> //.
have T_ok k : (k < n)%N -> 0 <= T k - T k.+1 <= looked_at T k.
  by move=> lt_kn; rewrite (T_levels.2 k) // W_ge0 // lexx.
have [best_iid best_le] := optimal_iid T_levels W_ge0; have best_acc := optimal_acceptance T_levels.1 T_ok.
split=> // [y | t t_iid t_le t_law]; first exact: (optimal_exact T_levels.1 T_ok).
by rewrite best_acc; apply: rule_bound T_levels t_iid t_le _ => y; rewrite t_law.
Qed.

End Optimal.
